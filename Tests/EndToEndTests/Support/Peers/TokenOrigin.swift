import Foundation

/// An origin that shows its pictures to whoever bears the current access token, and the token endpoint that issues it:
/// each refresh token is good for one use.
final class TokenOrigin: Sendable {
    struct State: Sendable {
        /// The only ones that are good.
        var access = "access-of-the-origin-0"
        var refresh: String
        /// Refresh tokens that came to the endpoint.
        var asked: [String] = []
        /// What the images were asked for with.
        var bearers: [String] = []
        var endpointAnswers = Answers.grant
    }

    enum Answers: Sendable {
        case grant
        case refuse
        case fail
        case hang
    }

    private let state: Watched<State>
    let server: GatedOrigin
    /// Where `/away` redirects to.
    private let away: Watched<String>

    init(refresh: String) throws {
        let state = Watched(State(refresh: refresh))
        let away = Watched("")
        self.state = state
        self.away = away
        server = try GatedOrigin { request in
            if request.path == "/token" { return Self.endpoint(request, state) }
            let bearer = request.headers["authorization"] ?? "nobody"
            let isGood = state.change { state in
                state.bearers.append(bearer)
                return bearer == "Bearer \(state.access)"
            }
            guard isGood else { return [.send(GatedOrigin.response([], status: "401 Unauthorized"))] }
            guard request.path != "/away" else {
                return [.send(GatedOrigin.response([], status: "302 Found", headers: ["Location: \(away.current)"]))]
            }
            return [.send(GatedOrigin.response(Self.picture(request.path)))]
        }
    }

    var current: State { state.current }

    static func picture(_ path: String) -> [UInt8] { Picture.gif("for bearers: \(path)") }

    /// The access token is good no longer, as when its time is up.
    func expire() { state.change { $0.access = "nobody has this one \(UUID().uuidString)" } }

    func answer(_ answers: Answers) { state.change { $0.endpointAnswers = answers } }

    func accept(refresh: String) { state.change { $0.refresh = refresh } }

    func redirectAway(to url: String) { away.change { $0 = url } }

    /// What a daemon's configuration says of it.
    func configure(_ settings: inout Settings, secretFile: String? = nil) {
        settings.setOrigin("\(server.url)/{profile}")
        settings["origins.default", "timeout"] = "60s"
        settings["origins.default.token", "endpoint"] = .string("\(server.url)/token")
        settings["origins.default.token", "client-id"] = "thumbcached"
        if let secretFile { settings["origins.default.token", "client-secret-file"] = .string(secretFile) }
    }

    func end() { server.end() }

    private static func endpoint(_ request: GatedOrigin.Request, _ state: Watched<State>) -> [GatedOrigin.Step] {
        let fields = request.body.split(separator: "&").map(String.init)
        let sent = fields.first { $0.hasPrefix("refresh_token=") }.map { String($0.dropFirst("refresh_token=".count)) }
        return state.change { state in
            state.asked.append(sent ?? "none")
            switch state.endpointAnswers {
            case .hang: return [.silence]
            case .fail: return [.send(GatedOrigin.response([], status: "503 Service Unavailable"))]
            case .grant where sent == state.refresh && fields.contains("grant_type=refresh_token"):
                let number = state.asked.count
                state.access = "access-of-the-origin-\(number)"
                state.refresh = "refresh-of-the-origin-\(number)"
                let json = """
                    {"access_token":"\(state.access)","token_type":"Bearer","expires_in":3600,\
                    "refresh_token":"\(state.refresh)"}
                    """
                return [.send(GatedOrigin.response(Array(json.utf8)))]
            case .grant, .refuse:
                let json = #"{"error":"invalid_grant"}"#
                return [.send(GatedOrigin.response(Array(json.utf8), status: "400 Bad Request"))]
            }
        }
    }
}

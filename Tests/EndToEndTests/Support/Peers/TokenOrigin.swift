import Foundation

/// An origin that requires the current access token, with the token endpoint that issues it. Each refresh token is
/// valid once.
final class TokenOrigin: Sendable {
    struct State: Sendable {
        /// The valid tokens.
        var access = "access-of-the-origin-0"
        var refresh: String
        /// Refresh tokens that the endpoint received.
        var receivedRefreshTokens: [String] = []
        /// Authorization fields of the requests for images.
        var authorizations: [String] = []
        var endpointBehavior = EndpointBehavior.grant
    }

    enum EndpointBehavior: Sendable {
        case grant
        case refuse
        case fail
        case hang
    }

    private let state: Watched<State>
    let server: GatedOrigin
    /// Target of the redirect at `/away`.
    private let away: Watched<String>

    init(refresh: String) throws {
        let state = Watched(State(refresh: refresh))
        let away = Watched("")
        self.state = state
        self.away = away
        server = try GatedOrigin { request in
            if request.path == "/token" { return Self.endpoint(request, state) }
            let authorization = request.headers["authorization"] ?? "none"
            let isValid = state.change { state in
                state.authorizations.append(authorization)
                return authorization == "Bearer \(state.access)"
            }
            guard isValid else { return [.send(GatedOrigin.response([], status: "401 Unauthorized"))] }
            guard request.path != "/away" else {
                return [.send(GatedOrigin.response([], status: "302 Found", headers: ["Location: \(away.current)"]))]
            }
            return [.send(GatedOrigin.response(Self.image(request.path)))]
        }
    }

    var current: State { state.current }

    static func image(_ path: String) -> [UInt8] { TestImage.gif("with a token: \(path)") }

    /// Invalidates the access token, as if it had expired.
    func expire() { state.change { $0.access = "unknown \(UUID().uuidString)" } }

    func setEndpoint(_ behavior: EndpointBehavior) { state.change { $0.endpointBehavior = behavior } }

    func accept(refresh: String) { state.change { $0.refresh = refresh } }

    func redirectAway(to url: String) { away.change { $0 = url } }

    /// Adds this origin to a daemon's configuration.
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
            state.receivedRefreshTokens.append(sent ?? "none")
            switch state.endpointBehavior {
            case .hang: return [.silence]
            case .fail: return [.send(GatedOrigin.response([], status: "503 Service Unavailable"))]
            case .grant where sent == state.refresh && fields.contains("grant_type=refresh_token"):
                let number = state.receivedRefreshTokens.count
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

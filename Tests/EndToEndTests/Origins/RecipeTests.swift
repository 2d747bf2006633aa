import Foundation
import Testing

extension EndToEnd.Origins {
    /// Each configuration in docs/recipes.md, with an imitation of the service's documented responses.
    struct RecipeTests {
        struct Recipe: Sendable, CustomTestStringConvertible {
            var title: String
            var toml: String
            var testDescription: String { title }
        }

        /// The requests of an application for a recipe, and the service's responses.
        struct Service: Sendable {
            /// The arguments of LOGIN after the user.
            var login: [String] = []
            /// A profile with an image, and one without.
            var profile = "bob@example.org"
            var unknown = "unknown@example.org"
            /// The arguments of GET after the profile.
            var options: [String] = []
            var response: @Sendable (_ host: String, GatedOrigin.Request, _ away: String) -> [UInt8]
        }

        static let image = TestImage.gif("bob")
        private static let digest = "686b5e4cf4f963adf8f51468a48028ef8d15bd02fa335f821279a3d1678c9615"

        private static func json(_ text: String, _ status: String) -> [UInt8] {
            GatedOrigin.response(Array(text.utf8), status: status, headers: ["Content-Type: application/json"])
        }

        /// Gravatar and Libravatar: without `d=404` a profile without an image gets a placeholder.
        private static let avatars = Service(options: ["SIZE", "64"]) { _, request, _ in
            switch request.path {
            case "/avatar/\(digest)?s=64&d=404": GatedOrigin.response(image)
            case let path where path.hasSuffix("d=404"): GatedOrigin.response([], status: "404 Not Found")
            default: GatedOrigin.response(TestImage.gif("placeholder"))
            }
        }

        private static let services: [String: Service] = [
            "Gravatar": avatars, "Libravatar": avatars,
            "Nextcloud": Service(profile: "bob", unknown: "unknown") { _, request, _ in
                request.path == "/index.php/avatar/bob/512"
                    ? GatedOrigin.response(image, headers: ["X-NC-IsCustomAvatar: 1"])
                    : json("[]", "404 Not Found")
            },
            "Matrix": Service(
                login: ["ORIGIN", "matrix", "TOKEN", "syt_token"], profile: "SEsfnsuifSDFSSEF", unknown: "gone",
                options: ["SIZE", "96"]
            ) { _, request, _ in
                guard request.headers["authorization"] == "Bearer syt_token" else {
                    return json(#"{"errcode":"M_MISSING_TOKEN","error":"Missing access token"}"#, "401 Unauthorized")
                }
                let media = "/_matrix/client/v1/media/thumbnail/example.org/"
                return request.path == media + "SEsfnsuifSDFSSEF?width=96&height=96&method=crop"
                    ? GatedOrigin.response(image)
                    : json(#"{"errcode":"M_NOT_FOUND","error":"Media not found"}"#, "404 Not Found")
            },
            "Microsoft Graph": Service(login: ["ORIGIN", "graph", "REFRESH", "refresh-1"]) { host, request, _ in
                if host == "login.microsoftonline.com" {
                    let fields = Set(request.body.split(separator: "&"))
                    let expected: Set<Substring> = [
                        "grant_type=refresh_token", "refresh_token=refresh-1", "client_id=CLIENT",
                    ]
                    guard request.path == "/TENANT/oauth2/v2.0/token", expected.isSubset(of: fields) else {
                        return json(#"{"error":"invalid_grant"}"#, "400 Bad Request")
                    }
                    return json(
                        #"{"token_type":"Bearer","expires_in":3599,"access_token":"eyJ0","refresh_token":"refresh-2"}"#,
                        "200 OK")
                }
                guard request.headers["authorization"] == "Bearer eyJ0" else {
                    return json(#"{"error":{"code":"InvalidAuthenticationToken"}}"#, "401 Unauthorized")
                }
                return request.path.removingPercentEncoding == "/v1.0/users/bob@example.org/photos/240x240/$value"
                    ? GatedOrigin.response(image)
                    : json(#"{"error":{"code":"ImageNotFound"}}"#, "404 Not Found")
            },
            "GitHub": Service(profile: "bob", unknown: "unknown", options: ["SIZE", "64"]) { host, request, away in
                switch (host, request.path) {
                case ("github.com", "/bob.png?size=64"):
                    GatedOrigin.response([], status: "302 Found", headers: ["Location: \(away)/u/1?s=64&v=4"])
                case ("avatars", "/u/1?s=64&v=4"): GatedOrigin.response(image)
                default: GatedOrigin.response([], status: "404 Not Found")
                }
            },
            "A directory of files": Service { _, request, _ in
                request.path.removingPercentEncoding == "/bob@example.org.png"
                    ? GatedOrigin.response(image) : GatedOrigin.response([], status: "404 Not Found")
            },
        ]

        /// The sections of the document with their configuration.
        static func recipes() throws -> [Recipe] {
            try readText("\(Files.repository)/docs/recipes.md")
                .matches(of: /(?m)^## (.+)$(?:(?s).*?)^```toml\n((?s).*?\n)```$/)
                .map { Recipe(title: String($0.output.1), toml: String($0.output.2)) }
        }

        @Test func `every recipe has an imitation of its service`() throws {
            #expect(try Set(Self.recipes().map(\.title)) == Set(Self.services.keys))
        }

        @Test(arguments: try recipes())
        func `a recipe returns the image of a profile, and null for a profile without one`(recipe: Recipe) throws {
            let service = try #require(Self.services[recipe.title])
            try withMachine { machine in
                let away = try GatedOrigin { [.send(service.response("avatars", $0, ""))] }
                defer { away.end() }
                var origins: [GatedOrigin] = []
                defer { for origin in origins { origin.end() } }
                // Federation requires https and DNS; FederationTests cover it.
                var toml = recipe.toml.replacing(/federation = .*\n/, with: "")
                for match in recipe.toml.matches(of: /https:\/\/([a-z.]+)/) {
                    let host = String(match.output.1)
                    let origin = try GatedOrigin { [url = away.url] in [.send(service.response(host, $0, url))] }
                    origins.append(origin)
                    toml = toml.replacing(match.output.0, with: origin.url)
                }
                toml = toml.replacing("allow-private-addresses = true\n", with: "")
                toml += "allow-private-addresses = true\nallow = [\"\(away.url)/\"]\n"
                let daemon = try machine.daemon { $0.extraConfiguration = toml }
                let client = try daemon.connect()
                try client.send(["LOGIN", "alice"] + service.login)
                #expect(try client.receive() == .ok)
                for (profile, expected) in [(service.profile, Reply.bulk(Self.image)), (service.unknown, .null)] {
                    try client.send(["GET", "alice", profile] + service.options)
                    let reply = try client.receive()
                    #expect(reply == expected, "\(profile): \(reply.brief)\n\(origins.map(\.requests))")
                }
            }
        }
    }
}

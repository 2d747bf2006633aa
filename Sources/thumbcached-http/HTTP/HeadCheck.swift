import NIOHTTP1

/// The checks that apply to every request, whatever its path. They need the head alone; bodies are never read.
struct HeadCheck: Sendable {
    let hosts: HostRule
    /// Names the setting of valid hosts, for the response.
    let hostSetting: String

    /// A rejected request.
    struct Refusal: Sendable {
        var response: Response
        /// Whether the connection closes, since a body that is not read would look like a request.
        let closes: Bool
    }

    /// Returns the refusal of an invalid request; nil for a GET or HEAD request without a body.
    func refusal(of head: HTTPRequestHead) -> Refusal? {
        let named = head.headers["Host"]
        guard named.count == 1, let host = named.first else {
            return Refusal(response: Response(.badRequest, "Missing or repeated Host field."), closes: true)
        }
        guard hosts.allows(host) else {
            let valid = "use localhost, a loopback address, or a name in \(hostSetting)"
            return Refusal(response: Response(.forbidden, "Invalid Host field; \(valid)."), closes: true)
        }
        guard head.method == .GET || head.method == .HEAD else {
            var response = Response(.methodNotAllowed, "Method not allowed; use GET or HEAD.")
            response.fields.append(("Allow", "GET, HEAD"))
            return Refusal(response: response, closes: true)
        }
        let hasBody =
            head.headers.contains(name: "Transfer-Encoding")
            || head.headers["Content-Length"].contains { $0 != "0" }
        guard !hasBody else {
            return Refusal(
                response: Response(.badRequest, "A GET or HEAD request must not have a body."), closes: true)
        }
        guard head.uri.utf8.first == UInt8(ascii: "/") else {
            return Refusal(
                response: Response(.badRequest, "Invalid request target; it must begin with /."), closes: true)
        }
        return nil
    }
}

import NIOHTTP1

/// What a request comes to.
enum Route: Sendable {
    case page
    case metrics
    /// - Parameter closes: whether what comes behind the head cannot be told from a next request, or is not wanted.
    case refused(Answer, closes: Bool)

    /// Decides by the head alone: no body is ever read.
    init(_ head: HTTPRequestHead, hosts: HostRule) {
        let hasBody =
            head.headers.contains(name: "Transfer-Encoding")
            || head.headers["Content-Length"].contains { $0 != "0" }
        func refused(_ status: HTTPResponseStatus, _ sentence: String, allow: Bool = false) -> Route {
            var answer = Answer(status, sentence)
            if allow { answer.fields.append(("Allow", "GET, HEAD")) }
            return .refused(answer, closes: hasBody || status != .notFound)
        }
        let named = head.headers["Host"]
        guard named.count == 1, let host = named.first else {
            self = refused(.badRequest, "A request names one host.")
            return
        }
        guard hosts.allows(host) else {
            let way = "Ask for localhost or a loopback address; further names are given with --host."
            self = refused(.forbidden, "This host is not one of those that are served. \(way)")
            return
        }
        guard head.method == .GET || head.method == .HEAD else {
            self = refused(.methodNotAllowed, "There is only something to read: GET or HEAD.", allow: true)
            return
        }
        guard !hasBody else {
            self = refused(.badRequest, "Nothing is to be sent with a GET or HEAD.")
            return
        }
        switch head.uri.prefix(while: { $0 != "?" }) {
        case "/": self = .page
        case "/metrics": self = .metrics
        case let path where path.hasPrefix("/"):
            self = refused(.notFound, "There are / for people and /metrics for Prometheus.")
        default: self = refused(.badRequest, "A request names a path.")
        }
    }
}

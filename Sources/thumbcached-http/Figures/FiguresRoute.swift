import NIOHTTP1

/// The handler of a request to the listener of metrics.
enum FiguresRoute: Sendable {
    case page
    case metrics
    case refused(HeadCheck.Refusal)

    init(_ head: HTTPRequestHead, _ check: HeadCheck) {
        if let refusal = check.refusal(of: head) {
            self = .refused(refusal)
            return
        }
        switch Substring(head.uri.utf8.prefix { $0 != UInt8(ascii: "?") }) {
        case "/": self = .page
        case "/metrics": self = .metrics
        default:
            self = .refused(
                .init(response: Response(.notFound, "Not found; valid paths are / and /metrics."), closes: false))
        }
    }
}

import Glibc
import LinuxSupport
import NIOCore
import NIOHTTP1

/// A complete HTTP response.
struct Response: Sendable {
    let status: HTTPResponseStatus
    /// nil for a response without a body.
    let contentType: String?
    let body: ByteBuffer
    /// The default: values are outdated at once, and no cache may keep them.
    var cacheControl = "no-store"
    /// The pages that may embed the response.
    var embedding = Embedding.sameOrigin
    /// Header fields in addition to those that every response has. Names are spelled as in their specification.
    var fields: [(String, String)] = []
    /// Held until the response is sent; closes the connection if it is revoked before.
    var transfer: ImageTransfers.Transfer?

    /// The values of the field Cross-Origin-Resource-Policy.
    enum Embedding: String, Sendable, CaseIterable {
        case sameOrigin = "same-origin"
        case sameSite = "same-site"
        case crossOrigin = "cross-origin"
    }

    /// The default policy: the document may load, run and be framed by nothing.
    static let strictestPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// A response with one line of plain text.
    init(_ status: HTTPResponseStatus, _ text: String) {
        self.init(status, type: "text/plain; charset=utf-8", ByteBuffer(string: text + "\n"))
    }

    init(_ status: HTTPResponseStatus, type: String, _ body: ByteBuffer) {
        (self.status, contentType, self.body) = (status, type, body)
    }

    /// A response without a body.
    init(_ status: HTTPResponseStatus) { (self.status, contentType, body) = (status, nil, ByteBuffer()) }

    /// - Parameter time: seconds since 1970.
    func head(closes: Bool, at time: Int64) -> HTTPResponseHead {
        var headers = [("Date", HTTPTime.format(time))]
        if let contentType { headers.append(("Content-Type", contentType)) }
        headers += [
            ("Content-Length", "\(body.readableBytes)"),
            ("Cache-Control", cacheControl),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", embedding.rawValue),
            // Other sites learn nothing from the referrer.
            ("Referrer-Policy", "no-referrer"),
        ]
        headers += fields
        if !fields.contains(where: { $0.0 == "Content-Security-Policy" }) {
            headers.append(("Content-Security-Policy", Self.strictestPolicy))
        }
        headers.append(("Connection", closes ? "close" : "keep-alive"))
        return HTTPResponseHead(version: .http1_1, status: status, headers: HTTPHeaders(headers))
    }
}

enum HTTPTime {
    /// Formats an HTTP date (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
    static func format(_ seconds: Int64) -> String {
        var (moment, parts) = (time_t(seconds), tm())
        gmtime_r(&moment, &parts)
        return String(unsafeUninitializedCapacity: 64) {
            $0.withMemoryRebound(to: CChar.self) {
                strftime($0.baseAddress, $0.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
            }
        }
    }
}

import Glibc
import LinuxSupport
import NIOCore
import NIOHTTP1

/// What a request is answered with.
struct Answer: Sendable {
    let status: HTTPResponseStatus
    let contentType: String
    let body: ByteBuffer
    /// What this one has beside the fields that all have.
    var fields: [(String, String)] = []

    /// Nothing is to be loaded, run or framed.
    static let strictestPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// A sentence for whoever reads it.
    init(_ status: HTTPResponseStatus, _ sentence: String) {
        self.init(status, type: "text/plain; charset=utf-8", ByteBuffer(string: sentence + "\n"))
    }

    init(_ status: HTTPResponseStatus, type: String, _ body: ByteBuffer) {
        (self.status, contentType, self.body) = (status, type, body)
    }

    /// - Parameter time: seconds since 1970.
    func head(closes: Bool, at time: Int64) -> HTTPResponseHead {
        var headers = HTTPHeaders()
        headers.add(name: "Date", value: HTTPTime.format(time))
        headers.add(name: "Content-Type", value: contentType)
        headers.add(name: "Content-Length", value: "\(body.readableBytes)")
        // Figures are of this moment, and nobody else's to keep.
        headers.add(name: "Cache-Control", value: "no-store")
        headers.add(name: "X-Content-Type-Options", value: "nosniff")
        // No page of another site embeds it, or is told that somebody was here.
        headers.add(name: "Cross-Origin-Resource-Policy", value: "same-origin")
        headers.add(name: "Referrer-Policy", value: "no-referrer")
        for (name, value) in fields { headers.add(name: name, value: value) }
        if !headers.contains(name: "Content-Security-Policy") {
            headers.add(name: "Content-Security-Policy", value: Self.strictestPolicy)
        }
        headers.add(name: "Connection", value: closes ? "close" : "keep-alive")
        return HTTPResponseHead(version: .http1_1, status: status, headers: headers)
    }
}

enum HTTPTime {
    /// RFC 9110, section 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`.
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

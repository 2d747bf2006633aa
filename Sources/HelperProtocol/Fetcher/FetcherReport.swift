import CacheCore
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// A message from the fetcher to the daemon, with the number of the request that it answers.
///
/// The daemon trusts nothing in it, because an attacker who took over libcurl may have written it.
package enum FetcherReport: Sendable {
    /// The image is the message's body.
    case image(UInt64, ResponseHeaders, redirectedTo: String?)
    case missing(UInt64, ResponseHeaders)
    case unusable(UInt64, ResponseHeaders, FetchFailure)
    case notModified(UInt64, ResponseHeaders)
    case token(UInt64, TokenGrant)
    case failed(UInt64, FetchFailure)
    /// Nil if the download would be sent.
    case checked(UInt64, FetchRefusal?)
    case pong(UInt64)
    case statistics(UInt64, FetcherStatistics)
}

extension FetcherReport {
    private enum Kind: UInt8 {
        case image, missing, unusable, notModified, token, failed, pong, statistics, checked
    }

    // Upper bounds, at least those of the fetcher's ResponseReader and DownloadTransfer.
    private static let maximumFields = 64
    private static let maximumValues = 16
    private static let maximumValueLength = 2_048
    fileprivate static let maximumSentence = 4_096
    private static let maximumRedirects = 8
    private static let maximumOrigins = 65_536
    /// Seconds of one request. Bounded so that sums with ages do not overflow.
    fileprivate static let maximumDelay = 86_400
    /// Milliseconds for which a circuit breaker can be open: the maximum of `backoff-max` and `retry-after-max`, rounded
    /// up to the next second.
    static let maximumRetry = 86_401_000
    /// Maximum lifetime of an access token: ten years.
    fileprivate static let maximumLifetime = 315_360_000

    /// Appends the message, after which the caller sends the body of `body` bytes.
    package func write(to buffer: inout ByteBuffer, body: Int = 0) {
        MessageWriter.add(to: &buffer, body: body) { message in
            func begin(_ kind: Kind, _ id: UInt64) {
                message.enumeration(kind)
                message.integer(id)
            }
            switch self {
            case .image(let id, let headers, let redirectedTo):
                begin(.image, id)
                headers.write(to: &message)
                message.optional(redirectedTo) { $0.text($1) }
            case .missing(let id, let headers):
                begin(.missing, id)
                headers.write(to: &message)
            case .unusable(let id, let headers, let failure):
                begin(.unusable, id)
                headers.write(to: &message)
                failure.write(to: &message)
            case .notModified(let id, let headers):
                begin(.notModified, id)
                headers.write(to: &message)
            case .token(let id, let grant):
                begin(.token, id)
                grant.write(to: &message)
            case .failed(let id, let failure):
                begin(.failed, id)
                failure.write(to: &message)
            case .checked(let id, let refusal):
                begin(.checked, id)
                message.optional(refusal) { $1.write(to: &$0) }
            case .pong(let id):
                begin(.pong, id)
            case .statistics(let id, let statistics):
                begin(.statistics, id)
                statistics.write(to: &message)
            }
        }
    }

    package init(_ fields: ByteBuffer) throws(MessageError) {
        var message = MessageReader(fields)
        let kind = try message.enumeration(Kind.self)
        let id = try message.integer(as: UInt64.self)
        switch kind {
        case .image:
            let headers = try ResponseHeaders(&message)
            let url = try message.optional { message throws(MessageError) in
                try Self.plain(try message.text(), maximum: DownloadTarget.longestRedirect)
            }
            self = .image(id, headers, redirectedTo: url)
        case .missing: self = .missing(id, try ResponseHeaders(&message))
        case .unusable:
            let headers = try ResponseHeaders(&message)
            let failure = try FetchFailure(&message)
            guard failure.kind.describesResponse else {
                throw MessageError("unusable: failure kind \(failure.kind.rawValue) does not describe a response")
            }
            self = .unusable(id, headers, failure)
        case .notModified: self = .notModified(id, try ResponseHeaders(&message))
        case .token: self = .token(id, try TokenGrant(&message))
        case .failed: self = .failed(id, try FetchFailure(&message))
        case .checked:
            self = .checked(id, try message.optional { message throws(MessageError) in try FetchRefusal(&message) })
        case .pong: self = .pong(id)
        case .statistics: self = .statistics(id, try FetcherStatistics(&message, maximumOrigins: Self.maximumOrigins))
        }
        try message.end()
    }

    /// Checks a URL, or the name or value of a header field: bounded ASCII without control characters. The fetcher
    /// drops or encodes all other bytes.
    fileprivate static func plain(_ text: String, maximum: Int) throws(MessageError) -> String {
        guard text.utf8.count <= maximum, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F || $0 == 0x09 }) else {
            throw MessageError("text longer than \(maximum) bytes or not plain ASCII")
        }
        return text
    }

    /// Reads an error message, and escapes invisible characters. libcurl quotes servers, for example the name in a
    /// certificate, so invisible characters do not prove that the fetcher is compromised.
    fileprivate static func sentence(_ message: inout MessageReader) throws(MessageError) -> String {
        let text = try message.text()
        guard text.utf8.count <= maximumSentence else {
            throw MessageError("error message: \(text.utf8.count) bytes, at most \(maximumSentence)")
        }
        return oneLine(text)
    }

    fileprivate static func field(_ message: inout MessageReader) throws(MessageError) -> (String, [String]) {
        let name = try plain(try message.text(), maximum: maximumValueLength)
        return (
            name,
            try message.list(maximum: maximumValues) { message throws(MessageError) in
                try plain(try message.text(), maximum: maximumValueLength)
            }
        )
    }

    fileprivate static func headersWithoutRedirects(
        _ message: inout MessageReader
    ) throws(MessageError) -> ResponseHeaders {
        let fields = try message.list(maximum: maximumFields, field)
        let delay = try message.count(maximum: .max)
        guard delay <= maximumDelay else { throw MessageError("response delay: \(delay) s") }
        return ResponseHeaders(Dictionary(fields) { $0 + $1 }, delay: Int64(delay))
    }

    fileprivate static func redirects(_ message: inout MessageReader) throws(MessageError) -> [ResponseHeaders] {
        try message.list(maximum: maximumRedirects, headersWithoutRedirects)
    }
}

extension ResponseHeaders {
    fileprivate func write(to message: inout MessageWriter) {
        writeResponse(to: &message)
        message.list(redirects) { $1.writeResponse(to: &$0) }
    }

    private func writeResponse(to message: inout MessageWriter) {
        message.list(fields) { message, field in
            message.text(field.key)
            message.list(field.value) { $0.text($1) }
        }
        message.integer(delay)
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        self = try FetcherReport.headersWithoutRedirects(&message)
        redirects = try FetcherReport.redirects(&message)
    }
}

extension TokenGrant {
    fileprivate func write(to message: inout MessageWriter) {
        message.secret(accessToken)
        message.optional(lifetime) { $0.integer($1) }
        message.optional(refreshToken) { $0.secret($1) }
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        self.init(
            accessToken: try message.secret(),
            lifetime: try message.optional { message throws(MessageError) in
                Int64(try message.count(maximum: FetcherReport.maximumLifetime))
            },
            refreshToken: try message.optional { message throws(MessageError) in try message.secret() })
    }
}

extension FetchFailure {
    fileprivate func write(to message: inout MessageWriter) {
        message.enumeration(kind)
        message.text(reason)
        message.optional(refreshToken) { $0.secret($1) }
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        self.init(
            try message.enumeration(Kind.self), try FetcherReport.sentence(&message),
            refreshToken: try message.optional { message throws(MessageError) in try message.secret() })
    }
}

extension FetchRefusal {
    fileprivate func write(to message: inout MessageWriter) {
        failure.write(to: &message)
        message.optional(retryIn) { $0.integer($1) }
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        let failure = try FetchFailure(&message)
        guard failure.refreshToken == nil else { throw MessageError("refusal: contains a refresh token") }
        self.init(
            failure,
            retryIn: try message.optional { message throws(MessageError) in
                Int64(try message.count(maximum: FetcherReport.maximumRetry))
            })
    }
}

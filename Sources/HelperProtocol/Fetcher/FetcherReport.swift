import CacheCore
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// What the fetcher says to the daemon, each time of a request by its number.
///
/// The daemon believes none of it: whoever has broken into libcurl speaks here.
package enum FetcherReport: Sendable {
    /// The image is the message's body.
    case image(UInt64, ResponseHeaders, redirectedTo: String?)
    case missing(UInt64, ResponseHeaders)
    case unusable(UInt64, ResponseHeaders, CacheFailure)
    case notModified(UInt64, ResponseHeaders)
    case failed(UInt64, CacheFailure)
    case token(UInt64, Result<TokenGrant, TransferFailure>)
    case alive(UInt64)
    case statistics(UInt64, FetcherStatistics)
}

extension FetcherReport {
    private enum Kind: UInt8 {
        case image, missing, notModified, failed, grant, tokenFailure, alive, statistics, unusable
    }

    /// Bytes of one value of a header field that an answer's reader keeps, and values of one field.
    private static let mostFields = 64
    private static let mostValues = 16
    private static let longestValue = 2_048
    fileprivate static let longestSentence = 4_096
    private static let mostRedirects = 8
    private static let mostOrigins = 65_536
    /// Seconds of one request; a sum of ages and of those never overflows.
    fileprivate static let longestDelay = 86_400
    /// Seconds that an access token is valid: ten years.
    fileprivate static let longestLifetime = 315_360_000

    /// Adds the message to what is to be sent.
    /// - Parameter body: bytes of image that are sent behind it.
    package func write(to buffer: inout ByteBuffer, body: Int = 0) {
        MessageWriter.add(to: &buffer, body: body) { message in
            func begin(_ kind: Kind, _ id: UInt64) {
                message.integer(kind.rawValue)
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
            case .failed(let id, let failure):
                begin(.failed, id)
                failure.write(to: &message)
            case .token(let id, .success(let grant)):
                begin(.grant, id)
                grant.write(to: &message)
            case .token(let id, .failure(let failure)):
                begin(.tokenFailure, id)
                failure.write(to: &message)
            case .alive(let id):
                begin(.alive, id)
            case .statistics(let id, let statistics):
                begin(.statistics, id)
                statistics.write(to: &message)
            }
        }
    }

    package init(_ fields: ByteBuffer) throws(MessageError) {
        var message = MessageReader(fields)
        let number = try message.integer(as: UInt8.self)
        guard let kind = Kind(rawValue: number) else { throw MessageError("is of an unknown kind, \(number)") }
        let id = try message.integer(as: UInt64.self)
        switch kind {
        case .image:
            let headers = try ResponseHeaders(&message)
            let url = try message.optional { message throws(MessageError) in
                try Self.plain(try message.text(), most: DownloadTarget.longestRedirect)
            }
            self = .image(id, headers, redirectedTo: url)
        case .missing: self = .missing(id, try ResponseHeaders(&message))
        case .unusable:
            let headers = try ResponseHeaders(&message)
            let failure = try CacheFailure(&message)
            guard NegativeReason(failure) != nil else { throw MessageError("has a failure that no response causes") }
            self = .unusable(id, headers, failure)
        case .notModified: self = .notModified(id, try ResponseHeaders(&message))
        case .failed: self = .failed(id, try CacheFailure(&message))
        case .grant: self = .token(id, .success(try TokenGrant(&message)))
        case .tokenFailure: self = .token(id, .failure(try TransferFailure(&message)))
        case .alive: self = .alive(id)
        case .statistics: self = .statistics(id, try FetcherStatistics(&message, mostOrigins: Self.mostOrigins))
        }
        try message.end()
    }

    /// Checks a URL, or the name or value of a header field: bounded, and ASCII without control characters. The
    /// fetcher's reader drops or encodes all other bytes.
    fileprivate static func plain(_ text: String, most: Int) throws(MessageError) -> String {
        guard text.utf8.count <= most, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F || $0 == 0x09 }) else {
            throw MessageError("has a text that is too long, or not plain ASCII")
        }
        return text
    }

    /// Reads a sentence for people, with characters that do not show escaped. libcurl quotes what servers sent, such as
    /// the name in a certificate, so these characters do not prove that the fetcher is compromised.
    fileprivate static func sentence(_ message: inout MessageReader) throws(MessageError) -> String {
        let text = try message.text()
        guard text.utf8.count <= longestSentence else { throw MessageError("has a sentence that is too long") }
        return oneLine(text)
    }

    fileprivate static func field(_ message: inout MessageReader) throws(MessageError) -> (String, [String]) {
        let name = try plain(try message.text(), most: longestValue)
        return (
            name,
            try message.list(most: mostValues) { message throws(MessageError) in
                try plain(try message.text(), most: longestValue)
            }
        )
    }

    fileprivate static func answer(_ message: inout MessageReader) throws(MessageError) -> ResponseHeaders {
        let fields = try message.list(most: mostFields, field)
        let delay = try message.count(most: .max)
        guard delay <= longestDelay else { throw MessageError("took \(delay) s") }
        return ResponseHeaders(Dictionary(fields) { $0 + $1 }, delay: Int64(delay))
    }

    fileprivate static func redirects(_ message: inout MessageReader) throws(MessageError) -> [ResponseHeaders] {
        try message.list(most: mostRedirects, answer)
    }
}

extension ResponseHeaders {
    fileprivate func write(to message: inout MessageWriter) {
        writeAnswer(to: &message)
        message.list(redirects) { $1.writeAnswer(to: &$0) }
    }

    private func writeAnswer(to message: inout MessageWriter) {
        message.list(fields) { message, field in
            message.text(field.key)
            message.list(field.value) { $0.text($1) }
        }
        message.integer(delay)
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        self = try FetcherReport.answer(&message)
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
                Int64(try message.count(most: FetcherReport.longestLifetime))
            },
            refreshToken: try message.optional { message throws(MessageError) in try message.secret() })
    }
}

/// Those that a download can end with; what it cannot end with is no failure of the origin's making.
private enum FailureKind: UInt8 {
    case denied, timedOut, origin, forbidden, unauthorized, badImage, tooLarge, busy, shuttingDown
}

extension CacheFailure {
    private var kind: FailureKind {
        switch self {
        case .denied: .denied
        case .timedOut: .timedOut
        case .forbidden: .forbidden
        case .unauthorized: .unauthorized
        case .badImage: .badImage
        case .tooLarge: .tooLarge
        case .busy: .busy
        case .shuttingDown: .shuttingDown
        case .origin, .notLoggedIn, .cancelled, .invalid, .noSpace, .inputOutput: .origin
        }
    }

    fileprivate func write(to message: inout MessageWriter) {
        message.integer(kind.rawValue)
        message.text(description)
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        let number = try message.integer(as: UInt8.self)
        let sentence = try FetcherReport.sentence(&message)
        switch FailureKind(rawValue: number) {
        case .denied: self = .denied(sentence)
        case .timedOut: self = .timedOut(sentence)
        case .origin: self = .origin(sentence)
        case .forbidden: self = .forbidden(sentence)
        case .unauthorized: self = .unauthorized(sentence)
        case .badImage: self = .badImage(sentence)
        case .tooLarge: self = .tooLarge(sentence)
        case .busy: self = .busy(sentence)
        case .shuttingDown: self = .shuttingDown
        case nil: throw MessageError("has an unknown failure, \(number)")
        }
    }
}

extension TransferFailure {
    private var parts: (number: UInt8, sentence: String, token: Secret?) {
        switch self {
        case .refused(let sentence): (0, sentence, nil)
        case .timedOut(let sentence): (1, sentence, nil)
        case .origin(let sentence): (2, sentence, nil)
        case .unusable(let sentence, let token): (3, sentence, token)
        case .notAsked(let sentence): (4, sentence, nil)
        case .denied(let sentence): (5, sentence, nil)
        case .busy(let sentence): (6, sentence, nil)
        case .shuttingDown: (7, "", nil)
        }
    }

    fileprivate func write(to message: inout MessageWriter) {
        let (number, sentence, token) = parts
        message.integer(number)
        message.text(sentence)
        message.optional(token) { $0.secret($1) }
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        let number = try message.integer(as: UInt8.self)
        let sentence = try FetcherReport.sentence(&message)
        let token = try message.optional { message throws(MessageError) in try message.secret() }
        switch (number, token) {
        case (0, nil): self = .refused(sentence)
        case (1, nil): self = .timedOut(sentence)
        case (2, nil): self = .origin(sentence)
        case (3, let token?): self = .unusable(sentence, refreshToken: token)
        case (4, nil): self = .notAsked(sentence)
        case (5, nil): self = .denied(sentence)
        case (6, nil): self = .busy(sentence)
        case (7, nil): self = .shuttingDown
        default: throw MessageError("has an unknown failure, \(number)")
        }
    }
}

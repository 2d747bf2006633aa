import CacheCore
import LinuxSupport
import NIOCore

/// A message from the daemon to the fetcher. The first one is ``settings(_:)``.
package enum FetcherRequest: Sendable {
    case settings(FetcherSettings)
    /// Defines an origin, or replaces one of the same name. The settings are `Origin.encodedSettings` of Origins.
    case origin(name: String, settings: Secret)
    /// The message contains the name of the origin, which was sent before.
    case download(UInt64, Download)
    case token(UInt64, TokenRequest)
    /// Requests the verdict of the circuit breakers on a download. Contains no token.
    case check(UInt64, Download)
    /// Cancels a request, whose report is ignored from now on.
    case cancel(UInt64)
    /// Answered by ``FetcherReport/pong(_:)`` on the thread that downloads.
    case ping(UInt64)
    case statistics(UInt64)
}

extension FetcherRequest {
    private enum Kind: UInt8 {
        case settings, origin, download, token, cancel, ping, statistics, check
    }

    /// Appends the message. Secrets are copied to `buffer` and to no other memory.
    package func write(to buffer: inout ByteBuffer) {
        MessageWriter.add(to: &buffer) { message in
            switch self {
            case .settings(let settings):
                message.enumeration(Kind.settings)
                settings.write(to: &message)
            case .origin(let name, let settings):
                message.enumeration(Kind.origin)
                message.text(name)
                message.secret(settings)
            case .download(let id, let download):
                message.enumeration(Kind.download)
                message.integer(id)
                download.write(to: &message)
            case .token(let id, let request):
                message.enumeration(Kind.token)
                message.integer(id)
                request.write(to: &message)
            case .check(let id, let download):
                message.enumeration(Kind.check)
                message.integer(id)
                download.write(to: &message)
            case .cancel(let id):
                message.enumeration(Kind.cancel)
                message.integer(id)
            case .ping(let id):
                message.enumeration(Kind.ping)
                message.integer(id)
            case .statistics(let id):
                message.enumeration(Kind.statistics)
                message.integer(id)
            }
        }
    }

    /// - Parameter origin: returns the origin of a name; nil if it was not sent before, which is an error.
    package init(_ fields: ByteBuffer, origin: (String) -> Origin?) throws(MessageError) {
        var message = MessageReader(fields)
        switch try message.enumeration(Kind.self) {
        case .settings: self = .settings(try FetcherSettings(from: &message))
        case .origin: self = .origin(name: try message.text(), settings: try message.secret())
        case .download: self = .download(try message.integer(), try Download(&message, origin))
        case .token: self = .token(try message.integer(), try TokenRequest(&message, origin))
        case .check: self = .check(try message.integer(), try Download(&message, origin))
        case .cancel: self = .cancel(try message.integer())
        case .ping: self = .ping(try message.integer())
        case .statistics: self = .statistics(try message.integer())
        }
        try message.end()
    }
}

extension Download {
    fileprivate func write(to message: inout MessageWriter) {
        message.integer(account)
        message.text(origin.name)
        message.text(target.url)
        message.flag(target.isNamedByClient)
        message.optional(target.federatedDomain) { $0.text($1) }
        message.optional(token) { $0.secret($1) }
        message.integer(timeout)
        message.optional(condition) { message, condition in
            message.text(condition.url)
            message.optional(condition.etag) { $0.text($1) }
            message.optional(condition.lastModified) { $0.text($1) }
        }
    }

    fileprivate init(_ message: inout MessageReader, _ origin: (String) -> Origin?) throws(MessageError) {
        let account: UInt32 = try message.integer()
        let origin = try message.origin(origin)
        let (url, isNamedByClient) = (try message.text(), try message.flag())
        let domain = try message.optional { message throws(MessageError) in try message.text() }
        let token = try message.optional { message throws(MessageError) in try message.secret() }
        let timeout: Int64 = try message.integer()
        let condition = try message.optional { message throws(MessageError) in
            let url = try message.text()
            let etag = try message.optional { message throws(MessageError) in try message.text() }
            let lastModified = try message.optional { message throws(MessageError) in try message.text() }
            return DownloadCondition(url: url, etag: etag, lastModified: lastModified)
        }
        self.init(
            account: account, origin: origin,
            target: DownloadTarget(url: url, isNamedByClient: isNamedByClient, federatedDomain: domain), token: token,
            timeout: timeout, condition: condition, framing: .bare)
    }
}

extension TokenRequest {
    fileprivate func write(to message: inout MessageWriter) {
        message.integer(account)
        message.text(origin.name)
        message.fields(TokenEndpoint.fields, of: endpoint)
        message.secret(refreshToken)
    }

    fileprivate init(_ message: inout MessageReader, _ origin: (String) -> Origin?) throws(MessageError) {
        let account: UInt32 = try message.integer()
        let origin = try message.origin(origin)
        var endpoint = TokenEndpoint(url: "", clientID: "")
        try message.fields(TokenEndpoint.fields, into: &endpoint)
        self.init(account: account, origin: origin, endpoint: endpoint, refreshToken: try message.secret())
    }
}

extension MessageReader {
    fileprivate mutating func origin(_ find: (String) -> Origin?) throws(MessageError) -> Origin {
        guard let origin = find(try text()) else { throw MessageError("origin: not sent before") }
        return origin
    }
}

extension TokenEndpoint {
    fileprivate static let fields: [MessageField<TokenEndpoint>] = [
        MessageField(\.url), MessageField(\.clientID), MessageField(\.clientSecret),
    ]
}

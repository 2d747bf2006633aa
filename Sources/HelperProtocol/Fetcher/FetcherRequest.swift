import CacheCore
import LinuxSupport
import NIOCore

/// What the daemon says to the fetcher. Both are of one version: the first message says which.
package enum FetcherRequest: Sendable {
    case settings(FetcherSettings)
    /// What its name means from now on.
    case origin(Origin)
    /// - Parameter origin: its name.
    case download(UInt64, DownloadRequest)
    case token(UInt64, TokenRefresh)
    /// What became of it is of no interest any more.
    case cancel(UInt64)
    /// To be answered by the thread that downloads.
    case isAlive(UInt64)
    case statistics(UInt64)
}

/// A download, of an origin that was named before.
package struct DownloadRequest: Sendable {
    package let uid: UInt32
    package let origin: String
    package let target: DownloadTarget
    package let token: Secret?
    /// Milliseconds.
    package let timeout: Int64
    package let condition: DownloadCondition?

    package init(_ download: Download) {
        (uid, origin, target) = (download.uid, download.origin.name, download.target)
        (token, timeout, condition) = (download.token, download.timeout, download.condition)
    }
}

/// A token request, to the endpoint of an origin that was named before.
package struct TokenRefresh: Sendable {
    package let uid: UInt32
    package let origin: String
    package let endpoint: TokenEndpoint
    package let refreshToken: Secret

    package init(_ request: TokenRequest) {
        (uid, origin) = (request.uid, request.origin.name)
        (endpoint, refreshToken) = (request.endpoint, request.refreshToken)
    }
}

extension FetcherRequest {
    private enum Kind: UInt8 {
        case settings, origin, download, token, cancel, isAlive, statistics
    }

    /// Adds the message to what is to be sent. A secret in it lies nowhere else.
    package func write(to buffer: inout ByteBuffer) {
        MessageWriter.add(to: &buffer) { message in
            switch self {
            case .settings(let settings):
                message.integer(Kind.settings.rawValue)
                settings.write(to: &message)
            case .origin(let origin):
                message.integer(Kind.origin.rawValue)
                origin.write(to: &message)
            case .download(let id, let download):
                message.integer(Kind.download.rawValue)
                message.integer(id)
                download.write(to: &message)
            case .token(let id, let refresh):
                message.integer(Kind.token.rawValue)
                message.integer(id)
                refresh.write(to: &message)
            case .cancel(let id):
                message.integer(Kind.cancel.rawValue)
                message.integer(id)
            case .isAlive(let id):
                message.integer(Kind.isAlive.rawValue)
                message.integer(id)
            case .statistics(let id):
                message.integer(Kind.statistics.rawValue)
                message.integer(id)
            }
        }
    }

    package init(_ fields: ByteBuffer) throws(MessageError) {
        var message = MessageReader(fields)
        let number = try message.integer(as: UInt8.self)
        guard let kind = Kind(rawValue: number) else { throw MessageError("is of an unknown kind, \(number)") }
        switch kind {
        case .settings: self = .settings(try FetcherSettings(&message))
        case .origin: self = .origin(try Origin(&message))
        case .download: self = .download(try message.integer(), try DownloadRequest(&message))
        case .token: self = .token(try message.integer(), try TokenRefresh(&message))
        case .cancel: self = .cancel(try message.integer())
        case .isAlive: self = .isAlive(try message.integer())
        case .statistics: self = .statistics(try message.integer())
        }
        try message.end()
    }
}

extension DownloadRequest {
    fileprivate func write(to message: inout MessageWriter) {
        message.integer(uid)
        message.text(origin)
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

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        uid = try message.integer()
        origin = try message.text()
        let (url, isNamedByClient) = (try message.text(), try message.flag())
        let domain = try message.optional { message throws(MessageError) in try message.text() }
        target = DownloadTarget(url: url, isNamedByClient: isNamedByClient, federatedDomain: domain)
        token = try message.optional { message throws(MessageError) in try message.secret() }
        timeout = try message.integer()
        condition = try message.optional { message throws(MessageError) in
            let url = try message.text()
            let etag = try message.optional { message throws(MessageError) in try message.text() }
            let lastModified = try message.optional { message throws(MessageError) in try message.text() }
            return DownloadCondition(url: url, etag: etag, lastModified: lastModified)
        }
    }
}

extension TokenRefresh {
    fileprivate func write(to message: inout MessageWriter) {
        message.integer(uid)
        message.text(origin)
        endpoint.write(to: &message)
        message.secret(refreshToken)
    }

    fileprivate init(_ message: inout MessageReader) throws(MessageError) {
        uid = try message.integer()
        origin = try message.text()
        endpoint = try TokenEndpoint(&message)
        refreshToken = try message.secret()
    }
}

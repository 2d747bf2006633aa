import CacheCore

/// What a fetcher may use, and what it must know before anybody is asked. Every limit is a number that an operator can
/// set (I8).
package struct FetcherSettings: Sendable, Equatable {
    /// Of the daemon: a fetcher of another one ends.
    package var version: String
    /// Bytes of one image.
    package var maximumImageBytes = 5 << 20
    /// Pixels that neither side of an image may exceed.
    package var maximumDimension = 8192
    /// Downloads at once, of all uids.
    package var downloads = 256
    /// Downloads at once, of one uid.
    package var downloadsPerUID = 64
    /// Downloads of one uid that wait until others have ended.
    package var queuePerUID = 1024
    /// Bytes of a token that an endpoint issues.
    package var maximumTokenBytes = 8 << 10
    /// Names of the origins that are configured; idle connections of others are closed.
    package var origins: Set<String> = []
    /// Paths of the origins' authorities: the files that it may read beside the system's.
    package var authorities: Set<String> = []
    /// Name of the least level that is logged.
    package var logLevel: String

    package init(version: String, logLevel: String) { (self.version, self.logLevel) = (version, logLevel) }
}

extension FetcherSettings {
    func write(to message: inout MessageWriter) {
        message.text(version)
        for limit in [
            maximumImageBytes, maximumDimension, downloads, downloadsPerUID, queuePerUID, maximumTokenBytes,
        ] {
            message.integer(Int64(limit))
        }
        message.list(origins) { $0.text($1) }
        message.list(authorities) { $0.text($1) }
        message.text(logLevel)
    }

    init(_ message: inout MessageReader) throws(MessageError) {
        version = try message.text()
        maximumImageBytes = try message.count(most: .max)
        maximumDimension = try message.count(most: .max)
        downloads = try message.count(most: .max)
        downloadsPerUID = try message.count(most: .max)
        queuePerUID = try message.count(most: .max)
        maximumTokenBytes = try message.count(most: .max)
        origins = Set(try message.list(most: .max) { message throws(MessageError) in try message.text() })
        authorities = Set(try message.list(most: .max) { message throws(MessageError) in try message.text() })
        logLevel = try message.text()
    }
}

extension Origin {
    func write(to message: inout MessageWriter) {
        message.text(name)
        message.text(url)
        message.flag(showsToken)
        message.list(then) { message, link in
            message.text(link.url)
            message.flag(link.allowPrivateAddresses)
            message.flag(link.showsToken)
        }
        message.integer(defaultSize)
        message.list(allow) { $0.text($1) }
        message.flag(allowPrivateAddresses)
        message.optional(tokenEndpoint) { $1.write(to: &$0) }
        for number in [
            connectTimeout, timeout, Int64(connections), defaultTTL, negativeTTL, staleWhileRevalidate, staleIfError,
            Int64(lowestSpeed), Int64(breaker.failures), breaker.backoff, breaker.backoffMax, breaker.retryAfterMax,
        ] {
            message.integer(number)
        }
        message.text(caFile)
        message.text(proxy)
        message.text(userAgent)
    }

    init(_ message: inout MessageReader) throws(MessageError) {
        self.init(name: try message.text(), url: try message.text())
        showsToken = try message.flag()
        then = try message.list(most: Self.mostLinks) { message throws(MessageError) in
            var link = Upstream(url: try message.text())
            link.allowPrivateAddresses = try message.flag()
            link.showsToken = try message.flag()
            return link
        }
        defaultSize = try message.integer()
        allow = try message.list(most: .max) { message throws(MessageError) in try message.text() }
        allowPrivateAddresses = try message.flag()
        tokenEndpoint = try message.optional { message throws(MessageError) in try TokenEndpoint(&message) }
        connectTimeout = try message.integer()
        timeout = try message.integer()
        connections = try message.count(most: .max)
        defaultTTL = try message.integer()
        negativeTTL = try message.integer()
        staleWhileRevalidate = try message.integer()
        staleIfError = try message.integer()
        lowestSpeed = try message.count(most: .max)
        breaker.failures = try message.count(most: .max)
        breaker.backoff = try message.integer()
        breaker.backoffMax = try message.integer()
        breaker.retryAfterMax = try message.integer()
        caFile = try message.text()
        proxy = try message.text()
        userAgent = try message.text()
    }
}

extension TokenEndpoint {
    func write(to message: inout MessageWriter) {
        message.text(url)
        message.text(clientID)
        message.optional(clientSecret) { $0.secret($1) }
    }

    init(_ message: inout MessageReader) throws(MessageError) {
        self.init(
            url: try message.text(), clientID: try message.text(),
            clientSecret: try message.optional { message throws(MessageError) in try message.secret() })
    }
}

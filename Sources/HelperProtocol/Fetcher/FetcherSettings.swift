/// The settings of a fetcher: limits, origins and certificate authorities (I8). The daemon sends them first, and again
/// after each reload.
package struct FetcherSettings: Sendable, Equatable {
    /// The daemon's version. A fetcher of another version exits.
    package var version: String
    /// Bytes of one image.
    package var maximumImageBytes = 5 << 20
    /// Pixels of the longer side of an image.
    package var maximumDimension = 8192
    /// Concurrent downloads.
    package var downloads = 256
    /// Concurrent downloads of one account.
    package var downloadsPerAccount = 64
    /// Queued downloads of one account.
    package var queuePerAccount = 1024
    /// Bytes of a token from a token endpoint.
    package var maximumTokenBytes = 8 << 10
    /// Names of the configured origins. Idle connections of other origins are closed; nil closes none.
    package var origins: Set<String>?
    /// Paths of the origins' certificate authorities. The fetcher may read these files and those of the system.
    package var authorities: Set<String> = []
    /// The lowest level that is logged.
    package var logLevel: String

    package init(version: String, logLevel: String) { (self.version, self.logLevel) = (version, logLevel) }

    /// Every property: the message consists of these. A test fails if one is missing.
    package static let fields: [MessageField<FetcherSettings>] = [
        MessageField(\.version), MessageField(\.maximumImageBytes), MessageField(\.maximumDimension),
        MessageField(\.downloads), MessageField(\.downloadsPerAccount), MessageField(\.queuePerAccount),
        MessageField(\.maximumTokenBytes), MessageField(\.origins), MessageField(\.authorities),
        MessageField(\.logLevel),
    ]

    /// The User-Agent of origins that have none of their own.
    package var userAgent: String { "thumbcached/\(version)" }
}

extension FetcherSettings: MessageValue {
    package func write(to message: inout MessageWriter) { message.fields(Self.fields, of: self) }

    package init(from message: inout MessageReader) throws(MessageError) {
        self.init(version: "", logLevel: "")
        try message.fields(Self.fields, into: &self)
    }
}

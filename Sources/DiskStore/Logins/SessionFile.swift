import CacheCore
import LinuxSupport
import NIOCore

/// A login: the user's name, its sessions, origin and tokens. Stored encrypted under the session key.
///
/// The record has its own version. Version 1 lacks refresh tokens and token lifetimes, version 2 token families,
/// version 3 the family of the refresh token. All are read.
///
///     0   "TCSESS", 0, format version
///     8   nonce
///     20  record, tag of 16 bytes
package struct SessionRecord: Equatable {
    package let user: OpaqueID
    package let login: LoginRecord

    private static let version: UInt8 = 4
}

extension SessionRecord {
    /// Nil unless the bytes are exactly one record of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = ByteReader(bytes)
        guard let version = reader.integer(UInt8.self), 1...Self.version ~= version, let user = reader.field(),
            let loggedInAt = reader.integer(Int64.self), let origin = reader.optional({ $0.text() }),
            let tokens = Self.readTokens(&reader, version: version), let count = reader.integer(UInt16.self)
        else { return nil }
        var login = LoginRecord(origin: origin, loggedInAt: loggedInAt)
        login.tokens = tokens
        for _ in 0..<count {
            guard let session = reader.field() else { return nil }
            login.sessions.insert(OpaqueID(ByteBuffer(bytes: session)))
        }
        guard reader.isAtEnd else { return nil }
        self.user = OpaqueID(ByteBuffer(bytes: user))
        self.login = login
    }

    private static func readTokens(_ reader: inout ByteReader, version: UInt8) -> LoginTokens? {
        var tokens = LoginTokens()
        guard let access = reader.optional({ $0.field() }) else { return nil }
        tokens.access = access.map { Secret($0) }
        guard version >= 2 else { return tokens }
        guard let knowsLife = reader.integer(UInt8.self), knowsLife <= 2 else { return nil }
        if knowsLife >= 1 {
            guard let issuedAt = reader.integer(Int64.self) else { return nil }
            tokens.life = TokenLife(issuedAt: issuedAt, seconds: nil)
        }
        if knowsLife == 2 {
            guard let seconds = reader.integer(Int64.self), seconds >= 0 else { return nil }
            tokens.life?.seconds = seconds
        }
        guard let refresh = reader.optional({ $0.field() }) else { return nil }
        tokens.refresh = refresh.map { Secret($0) }
        if version >= 3 {
            guard let family = reader.integer(UInt32.self) else { return nil }
            tokens.family = family
        }
        if version >= 4 {
            guard let family = reader.integer(UInt32.self) else { return nil }
            tokens.refreshFamily = family
        } else {
            // Version 3 does not record whether the access token came with the refresh token, so this is inferred.
            let isKin = tokens.access == nil || tokens.life != nil || tokens.refresh == nil
            tokens.refreshFamily = isKin ? tokens.family : tokens.family &+ 1
        }
        return tokens
    }

    private static func write(_ tokens: LoginTokens, to writer: inout ByteWriter) {
        writer.optional(tokens.access) { writer, token in token.withBytes { writer.field($0) } }
        writer.integer(UInt8(tokens.life.map { $0.seconds == nil ? 1 : 2 } ?? 0))
        if let life = tokens.life {
            writer.integer(life.issuedAt)
            if let seconds = life.seconds { writer.integer(seconds) }
        }
        writer.optional(tokens.refresh) { writer, token in token.withBytes { writer.field($0) } }
        writer.integer(tokens.family)
        writer.integer(tokens.refreshFamily)
    }

    /// Returns the encoded record, which contains tokens and must be wiped. Throws if a field is too long.
    func encoded() throws -> ByteWriter {
        let fields = login.sessions.map(\.count) + [user.count]
        let tokens = login.tokens
        let texts = (login.origin?.utf8.count ?? 0) + (tokens.access?.count ?? 0) + (tokens.refresh?.count ?? 0)
        var writer = ByteWriter(capacity: 64 + texts + fields.reduce(0) { $0 + $1 + 2 })
        writer.integer(Self.version)
        user.withBytes { writer.field($0) }
        writer.integer(login.loggedInAt)
        writer.optional(login.origin) { $0.text($1) }
        Self.write(tokens, to: &writer)
        guard let count = UInt16(exactly: login.sessions.count), !writer.isTooLong else {
            writer.wipe()
            throw StoreError.failed(
                "a login can have at most 65,535 sessions, and an origin and tokens of at most 65,535 bytes")
        }
        writer.integer(count)
        for session in login.sessions { session.withBytes { writer.field($0) } }
        return writer
    }
}

enum SessionFile {
    /// Maximum bytes of a file: 65,535 sessions of 512 bytes and the other fields. Larger files are damaged.
    static let maximumLength = 64 << 20
    private static let magic = Array("TCSESS".utf8) + [0, 1]

    static func seal(
        _ record: SessionRecord, of owner: HashedOwner, key: Secret, algorithms: Algorithms, random: any RandomSource
    ) throws -> [UInt8] {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        var text = try record.encoded()
        defer { text.wipe() }
        var file = magic + [UInt8](repeating: 0, count: EntryCipher.overhead + text.bytes.count)
        try file.withUnsafeMutableBytes { file in
            let sealed = UnsafeMutableRawBufferPointer(rebasing: file[magic.count...])
            try text.bytes.withUnsafeBytes { text in
                try authenticatedData(of: owner).withUnsafeBytes { authenticated in
                    try cipher.seal(
                        text, UnsafeRawBufferPointer(start: nil, count: 0), authenticating: authenticated, into: sealed,
                        random: random)
                }
            }
        }
        return file
    }

    /// Decrypts a file; nil unless it was encrypted under this key for this owner.
    static func open(
        _ file: Secret, of owner: HashedOwner, key: Secret, algorithms: Algorithms
    ) throws -> SessionRecord? {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        return file.withBytes { bytes in
            guard bytes.count >= magic.count + EntryCipher.overhead, bytes.starts(with: magic) else { return nil }
            return withWipedMemory(bytes.count - magic.count) { sealed in
                sealed.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[magic.count...]))
                let text = authenticatedData(of: owner).withUnsafeBytes { cipher.open(sealed, authenticating: $0) }
                return text.flatMap { SessionRecord(UnsafeRawBufferPointer($0)) }
            }
        }
    }

    private static func authenticatedData(of owner: HashedOwner) -> [UInt8] {
        var writer = ByteWriter(capacity: 44)
        writer.append(magic)
        writer.integer(owner.uid)
        writer.append(owner.user.bytes)
        return writer.bytes
    }
}

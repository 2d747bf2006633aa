import CacheCore
import LinuxSupport
import NIOCore

/// Who is logged in and how: the account's name, sessions, origin and tokens, sealed under the log-in's session key.
///
/// The record has a version of its own. The first knew of no refresh token and of no token's life, the second of no
/// token's family, the third of no family of the refresh token's own; all are still read.
///
///     0   "TCSESS", 0, and the format's version
///     8   nonce
///     20  record, tag of 16 bytes
package struct SessionRecord: Equatable {
    package let user: OpaqueID
    package let login: LoginRecord

    private static let version: UInt8 = 4
}

extension SessionRecord {
    /// nil unless the bytes are exactly one record of this version or one before.
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
            // Nobody wrote down whether a LOGIN's access token came with the refresh token.
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

    /// The record as it is sealed; holds the tokens, so wipe it. Throws when a field is too long to be kept.
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
            throw StoreError.failed("a log-in keeps at most 65,535 sessions, and an origin or token of that many bytes")
        }
        writer.integer(count)
        for session in login.sessions { session.withBytes { writer.field($0) } }
        return writer
    }
}

enum SessionFile {
    /// Larger files are damaged: 65,535 sessions of 512 bytes and the rest.
    static let longest = 64 << 20
    private static let magic = Array("TCSESS".utf8) + [0, 1]

    /// The file for a record.
    static func seal(
        _ record: SessionRecord, of owner: HashedOwner, key: Secret, algorithms: Algorithms, random: any RandomSource
    ) throws -> [UInt8] {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        var text = try record.encoded()
        defer { text.wipe() }
        var file = magic + [UInt8](repeating: 0, count: EntryCipher.overhead + text.bytes.count)
        try file.withUnsafeMutableBytes { file in
            let box = UnsafeMutableRawBufferPointer(rebasing: file[magic.count...])
            try text.bytes.withUnsafeBytes { text in
                try bound(to: owner).withUnsafeBytes { bound in
                    try cipher.seal(
                        text, UnsafeRawBufferPointer(start: nil, count: 0), bound: bound, into: box, random: random)
                }
            }
        }
        return file
    }

    /// nil unless the file was sealed under this key for this owner.
    static func open(
        _ file: Secret, of owner: HashedOwner, key: Secret, algorithms: Algorithms
    ) throws -> SessionRecord? {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        return file.withBytes { bytes in
            guard bytes.count >= magic.count + EntryCipher.overhead, bytes.starts(with: magic) else { return nil }
            return withWipedMemory(bytes.count - magic.count) { box in
                box.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[magic.count...]))
                let text = bound(to: owner).withUnsafeBytes { cipher.open(box, bound: $0) }
                return text.flatMap { SessionRecord(UnsafeRawBufferPointer($0)) }
            }
        }
    }

    private static func bound(to owner: HashedOwner) -> [UInt8] {
        var writer = ByteWriter(capacity: 44)
        writer.append(magic)
        writer.integer(owner.uid)
        writer.append(owner.user.bytes)
        return writer.bytes
    }
}

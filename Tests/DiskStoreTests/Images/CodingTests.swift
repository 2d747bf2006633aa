import CacheCore
import LinuxSupport
import NIOCore
import Testing

@testable import DiskStore

private let fullRecord = ImageRecord(
    shape: ImageShape(kind: .avif, width: 1, height: .max),
    digest: ImageDigest(Array(0..<32))!, provenance: .url("https://example.org/ä"),
    freshness: Freshness(
        storedAt: -1, initialAge: .max, lifetime: 0, staleWhileRevalidate: 5, staleIfError: .min),
    fields: StoredFields(
        cacheControl: "max-age=5", expires: "0", pragma: "p", vary: "accept", etag: "W/\"x\"", lastModified: ""),
    redirectedTo: "https://example.org/b", tokenFamily: .max, isStandIn: true)

@Test func `a record with any subset of optional fields is read as written`() throws {
    // Each bit selects an optional field.
    for parts in 0..<2_048 {
        var record = fullRecord
        if parts & 1 == 0 { record.provenance = .put }
        if parts & 2 == 0 { record.redirectedTo = nil }
        if parts & 4 == 0 { record.freshness.lifetime = nil }
        if parts & 8 == 0 { record.fields.cacheControl = nil }
        if parts & 16 == 0 { record.fields.expires = nil }
        if parts & 32 == 0 { record.fields.pragma = nil }
        if parts & 64 == 0 { record.fields.vary = nil }
        if parts & 128 == 0 { record.fields.etag = nil }
        if parts & 256 == 0 { record.fields.lastModified = nil }
        if parts & 512 == 0 { record.tokenFamily = nil }
        if parts & 1_024 == 0 { record.isStandIn = false }
        let bytes = try #require(ImageRecordCoding.encode(record))
        #expect(bytes.withUnsafeBytes { ImageRecordCoding.decode($0) } == record)
    }
}

@Test func `a truncated or extended record is invalid`() throws {
    let bytes = try #require(ImageRecordCoding.encode(fullRecord))
    for length in 0..<bytes.count {
        #expect(bytes[..<length].withUnsafeBytes { ImageRecordCoding.decode($0) } == nil)
    }
    #expect((bytes + [0]).withUnsafeBytes { ImageRecordCoding.decode($0) } == nil)
    // Other version, unknown field, invalid kind of image, invalid UTF-8.
    for (position, value) in [
        (0, 1), (0, 2), (0, 4), (1, 8), (3, 0), (3, 6), (bytes.count - 4, 0xFF),
    ] as [(Int, UInt8)] {
        var wrong = bytes
        wrong[position] = value
        #expect(wrong.withUnsafeBytes { ImageRecordCoding.decode($0) } == nil, "byte \(position)")
    }
}

@Test
func `a record of version 2 is read unless its response may have varied by token`()
    throws
{
    for parts in 0..<8 {
        var record = fullRecord
        record.isStandIn = false
        if parts & 1 == 0 { record.redirectedTo = nil }
        if parts & 2 == 0 { record.fields.vary = nil }
        if parts & 4 == 0 { record.tokenFamily = nil }
        let bytes = [2] + (try #require(ImageRecordCoding.encode(record))).dropFirst()
        #expect(bytes.withUnsafeBytes { ImageRecordCoding.decode($0) } == (parts == 0 ? record : nil))
    }
}

@Test func `validators over 1 KiB are dropped and URLs over 64 KiB rejected`() throws {
    var record = fullRecord
    record.fields.etag = String(repeating: "e", count: 1025)
    record.fields.lastModified = String(repeating: "m", count: 1024)
    let bytes = try #require(ImageRecordCoding.encode(record))
    let found = try #require(bytes.withUnsafeBytes { ImageRecordCoding.decode($0) })
    #expect(found.fields.etag == nil)
    #expect(found.fields.lastModified == record.fields.lastModified)
    record.provenance = .url(String(repeating: "u", count: 65_535))
    #expect(ImageRecordCoding.encode(record) != nil)
    record.provenance = .url(String(repeating: "u", count: 65_536))
    #expect(ImageRecordCoding.encode(record) == nil)
}

@Test func `a session record is read as written; a shorter or longer one is invalid`() throws {
    let logins = [
        LoginRecord(loggedInAt: 0),
        LoginRecord(
            sessions: Set((0..<70).map { OpaqueID("session \($0)") }), origin: "", token: Secret([]), loggedInAt: .min),
        LoginRecord(sessions: [OpaqueID("s")], origin: "o", token: Secret([0, 255]), loggedInAt: .max),
    ]
    for login in logins {
        let record = SessionRecord(user: OpaqueID(ByteBuffer(bytes: [0, 0xFF, 0x2F])), login: login)
        let bytes = try record.encoded().bytes
        #expect(bytes.withUnsafeBytes { SessionRecord($0) } == record)
        #expect((bytes + [0]).withUnsafeBytes { SessionRecord($0) } == nil)
        for length in 0..<bytes.count { #expect(bytes[..<length].withUnsafeBytes { SessionRecord($0) } == nil) }
    }
    let tooLong = LoginRecord(token: Secret([UInt8](repeating: 0, count: 65_536)), loggedInAt: 0)
    #expect(throws: StoreError.self) { try SessionRecord(user: OpaqueID("a"), login: tooLong).encoded() }
}

@Test func `a session record keeps all tokens, and earlier versions are read`()
    throws
{
    for tokens in [
        LoginTokens(refresh: Secret([1])), LoginTokens(access: Secret([2]), refresh: Secret([3, 4])),
        LoginTokens(access: Secret([2]), life: TokenLife(issuedAt: .min, seconds: nil)),
        LoginTokens(access: Secret([2]), life: TokenLife(issuedAt: 7, seconds: .max), refresh: Secret([])),
        LoginTokens(access: Secret([2]), family: .max), LoginTokens(refresh: Secret([3]), family: 1, refreshFamily: 9),
    ] {
        var login = LoginRecord(sessions: [OpaqueID("s")], origin: "o", loggedInAt: 5)
        login.tokens = tokens
        let record = SessionRecord(user: OpaqueID("alice"), login: login)
        let bytes = try record.encoded().bytes
        #expect(bytes.withUnsafeBytes { SessionRecord($0) } == record)
        for length in 0..<bytes.count { #expect(bytes[..<length].withUnsafeBytes { SessionRecord($0) } == nil) }
    }
    let first: [UInt8] =
        [1, 0, 5] + Array("alice".utf8) + [0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 1] + Array("o".utf8) + [1, 0, 2, 8, 9]
        + [0, 1, 0, 1] + Array("s".utf8)
    let old = SessionRecord(
        user: OpaqueID("alice"),
        login: LoginRecord(sessions: [OpaqueID("s")], origin: "o", token: Secret([8, 9]), loggedInAt: 5))
    #expect(first.withUnsafeBytes { SessionRecord($0) } == old)
    let second = [2] + first.dropFirst().prefix(24) + [0, 0] + first.suffix(5)
    #expect(second.withUnsafeBytes { SessionRecord($0) } == old)
    // Version 2 does not record whether the tokens came together.
    let secondWithRefresh = Array(second[..<(second.count - 6)]) + [1, 0, 1, 7] + second.suffix(5)
    let tokens = try #require(secondWithRefresh.withUnsafeBytes { SessionRecord($0) }).login.tokens
    #expect(tokens == LoginTokens(access: Secret([8, 9]), refresh: Secret([7]), family: 0, refreshFamily: 1))
    for version in [0, 3, 4, 5] as [UInt8] {
        #expect(([version] + first.dropFirst()).withUnsafeBytes { SessionRecord($0) } == nil)
    }
}

@Test func `an entry header of another format or length is invalid`() throws {
    let header = EntryHeader(recordLength: 100, imageLength: 8192)
    var bytes = [UInt8](repeating: 7, count: EntryHeader.size)
    bytes.withUnsafeMutableBytes { header.write(to: $0) }
    let size = 100 + 8192 + EntryHeader.overhead
    #expect(bytes.withUnsafeBytes { EntryHeader($0, fileSize: size) } == header)
    for wrong in [0, size - 1, size + 1] { #expect(bytes.withUnsafeBytes { EntryHeader($0, fileSize: wrong) } == nil) }
    for position in 0..<12 {
        var damaged = bytes
        damaged[position] ^= 1
        #expect(damaged.withUnsafeBytes { EntryHeader($0, fileSize: size) } == nil)
    }
    let huge = Array("TCE".utf8) + [1] + [UInt8](repeating: 0xFF, count: 8)
    #expect(huge.withUnsafeBytes { EntryHeader($0, fileSize: huge.count) } == nil)
}

import CacheCore
import LinuxSupport
import Testing

@testable import DiskStore

/// The data that each tag or check value covers in addition to the contents (F12). All owners have the same key here,
/// so that only this data can reject a swapped file.
@Suite struct BindingTests {
    private let algorithms: Algorithms
    private let key: Secret
    private let owner: HashedOwner
    /// The same name with another uid, and another name with the same uid.
    private let others: [HashedOwner]

    init() throws {
        algorithms = try Algorithms()
        key = try SecureRandom().key()
        let names = try ["ab", "cd"].map { digits in
            try #require(HashedName(hex: Array(String(repeating: digits, count: 32).utf8)))
        }
        owner = HashedOwner(uid: 1000, user: names[0])
        others = [HashedOwner(uid: 1001, user: names[0]), HashedOwner(uid: 1000, user: names[1])]
    }

    private func authenticated(_ owner: HashedOwner, _ id: GenerationID) -> [UInt8] {
        EntryHeader.owner(of: Generation(number: 1, owner: owner, id: id, isNew: true))
    }

    private func entry(
        _ header: EntryHeader, _ text: [UInt8], of owner: [UInt8], at address: EntryAddress
    ) throws -> [UInt8] {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        var entry = [UInt8](repeating: 0, count: EntryHeader.overhead + text.count)
        try entry.withUnsafeMutableBytes { entry in
            header.write(to: entry)
            let sealed = UnsafeMutableRawBufferPointer(rebasing: entry[EntryHeader.sealedStart...])
            try header.withAuthenticatedData(of: owner, at: address) { authenticated in
                try text.withUnsafeBytes { text in
                    try cipher.seal(
                        text, UnsafeRawBufferPointer(start: nil, count: 0), authenticating: authenticated, into: sealed,
                        random: SecureRandom())
                }
            }
        }
        return entry
    }

    /// The length of the image, or nil if the entry does not open.
    private func opened(_ entry: [UInt8], of owner: [UInt8], at address: EntryAddress) throws -> Int? {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        var entry = entry
        return entry.withUnsafeMutableBytes {
            EntryHeader.open($0, of: owner, at: address, with: cipher)?.imageLength
        }
    }

    @Test func `F11, F12, I5: an entry whose header splits image and record differently does not open`() throws {
        let record = try #require(ImageRecordCoding.encode(testImage(1).record))
        let text = [UInt8](repeating: 7, count: 14) + record
        let address = EntryAddress(profile: owner.user, code: 64)
        let authenticated = authenticated(owner, try SecureRandom().generationID())
        let right = EntryHeader(recordLength: record.count, imageLength: 14)
        let other = EntryHeader(recordLength: record.count + 4, imageLength: 10)
        #expect(
            try opened(try entry(right, text, of: authenticated, at: address), of: authenticated, at: address) == 14)
        // The record matches the new header, so only the tag can reject it.
        var moved = try entry(other, text, of: authenticated, at: address)
        moved.withUnsafeMutableBytes { right.write(to: $0) }
        #expect(try opened(moved, of: authenticated, at: address) == nil)
    }

    @Test func `F12, I1: an entry opens for its uid, user and generation only, even under the same key`() throws {
        let record = try #require(ImageRecordCoding.encode(testImage(1).record))
        let address = EntryAddress(profile: owner.user, code: 64)
        let id = try SecureRandom().generationID()
        let header = EntryHeader(recordLength: record.count, imageLength: 2)
        let sealed = try entry(header, [1, 2] + record, of: authenticated(owner, id), at: address)
        #expect(try opened(sealed, of: authenticated(owner, id), at: address) == 2)
        for other in others { #expect(try opened(sealed, of: authenticated(other, id), at: address) == nil) }
        let later = authenticated(owner, try SecureRandom().generationID())
        #expect(try opened(sealed, of: later, at: address) == nil)
    }

    @Test func `F12, I1: a session file opens for its uid and user only, even under the same key`() throws {
        let record = SessionRecord(user: alice.user, login: .plain)
        let file = try SessionFile.seal(record, of: owner, key: key, algorithms: algorithms, random: SecureRandom())
        #expect(try SessionFile.open(Secret(file), of: owner, key: key, algorithms: algorithms) == record)
        for other in others {
            #expect(try SessionFile.open(Secret(file), of: other, key: key, algorithms: algorithms) == nil)
        }
    }

    @Test func `F12, I1: a key file is valid for its uid and user only`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            let names = store.logins.names
            let bytes = try KeyFile(random: SecureRandom())
                .withEncoded(check: { try names.check($0, of: owner, into: $1) }) { Array($0) }
            func isKeyFile(of owner: HashedOwner) throws -> Bool {
                try bytes.withUnsafeBytes { try KeyFile($0) { try names.check($0, of: owner, into: $1) } != nil }
            }
            #expect(try isKeyFile(of: owner))
            for other in others { #expect(try !isKeyFile(of: other)) }
        }
    }
}

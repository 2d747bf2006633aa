import CacheCore
import LinuxSupport
import Testing

@testable import DiskStore

/// What a tag or check value binds beside its contents, one part at a time (F12). In the files of a store other keys
/// mostly stand in the way as well; here the key is the same.
@Suite struct BindingTests {
    private let algorithms: Algorithms
    private let key: Secret
    private let owner: HashedOwner
    /// The same user's name at another uid, and another name at the same uid.
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

    private func bound(_ owner: HashedOwner, _ id: GenerationID) -> [UInt8] {
        EntryHeader.owner(of: Generation(number: 1, owner: owner, id: id, isNew: true))
    }

    private func entry(
        _ header: EntryHeader, _ text: [UInt8], of owner: [UInt8], at address: EntryAddress
    ) throws -> [UInt8] {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        var entry = [UInt8](repeating: 0, count: EntryHeader.overhead + text.count)
        try entry.withUnsafeMutableBytes { entry in
            header.write(to: entry)
            let box = UnsafeMutableRawBufferPointer(rebasing: entry[EntryHeader.boxStart...])
            try header.withBound(of: owner, at: address) { bound in
                try text.withUnsafeBytes { text in
                    try cipher.seal(
                        text, UnsafeRawBufferPointer(start: nil, count: 0), bound: bound, into: box,
                        random: SecureRandom())
                }
            }
        }
        return entry
    }

    /// The length of the image, if it opens.
    private func opened(_ entry: [UInt8], of owner: [UInt8], at address: EntryAddress) throws -> Int? {
        let cipher = try EntryCipher(key: key, algorithms: algorithms)
        var entry = entry
        return entry.withUnsafeMutableBytes {
            EntryHeader.open($0, of: owner, at: address, with: cipher)?.imageLength
        }
    }

    @Test func `F11, F12, I5: lengths that make the same file, but another image of it, do not open`() throws {
        let record = try #require(ImageRecordCoding.encode(picture(1).record))
        let text = [UInt8](repeating: 7, count: 14) + record
        let address = EntryAddress(profile: owner.user, code: 64)
        let bound = bound(owner, try SecureRandom().generationID())
        let right = EntryHeader(recordLength: record.count, imageLength: 14)
        let other = EntryHeader(recordLength: record.count + 4, imageLength: 10)
        #expect(try opened(try entry(right, text, of: bound, at: address), of: bound, at: address) == 14)
        // What the header says now could be read: the record begins where it says.
        var moved = try entry(other, text, of: bound, at: address)
        moved.withUnsafeMutableBytes { right.write(to: $0) }
        #expect(try opened(moved, of: bound, at: address) == nil)
    }

    @Test func `F12, I1: an entry opens for its uid, user and generation only, even under the same key`() throws {
        let record = try #require(ImageRecordCoding.encode(picture(1).record))
        let address = EntryAddress(profile: owner.user, code: 64)
        let id = try SecureRandom().generationID()
        let header = EntryHeader(recordLength: record.count, imageLength: 2)
        let sealed = try entry(header, [1, 2] + record, of: bound(owner, id), at: address)
        #expect(try opened(sealed, of: bound(owner, id), at: address) == 2)
        for other in others { #expect(try opened(sealed, of: bound(other, id), at: address) == nil) }
        let later = bound(owner, try SecureRandom().generationID())
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

    @Test func `F12, I1: a key file is that of its uid and user only`() throws {
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

import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing
import ThumbnailCache

/// Images whose files stay open between two looks that never wait.
@Suite struct OpenEntriesTests {
    private let tree: TestTree
    private let system = FaultySystem()

    init() throws {
        tree = try TestTree()
    }

    /// Alice's vault with bob's picture in it, which was looked at twice a moment ago. `descriptors` are those open without it.
    private func withOpenEntry(
        _ body: (_ vault: any ImageVault, _ store: DiskStore, _ descriptors: Int) throws -> Void
    ) throws {
        try tree.withStore(tree.configuration(userQuota: 16_000), system: system) { store in
            let vault = try store.commitLogin(alice, .plain)
            try vault.put(slot("bob"), picture(1))
            // As far as removing an image opens directories, they are open from here on.
            _ = try vault.remove([OpaqueID("bob")], fence: { _ in })
            try vault.put(slot("bob"), picture(1))
            let descriptors = system.descriptors
            #expect(readCached(vault) == picture(1).content && system.descriptors == descriptors)
            #expect(readCached(vault) == picture(1).content && system.descriptors == descriptors + 1)
            system.heal()
            try body(vault, store, descriptors)
        }
    }

    private func readCached(_ vault: any ImageVault, _ profile: String = "bob") -> [UInt8]? {
        vault.readCached(slot(profile), framing: .bare).image.map(\.content)
    }

    @Test func `an image that is asked for again takes one system call`() throws {
        try withOpenEntry { vault, _, _ in
            #expect(readCached(vault) == picture(1).content)
            #expect(system.calls == 1 && system.count(of: .readCached) == 1)
        }
    }

    @Test func `what is known of an image is the same whether its file was opened just now or before`() throws {
        try tree.withStore(system: system) { store in
            let vault = try store.commitLogin(alice, .plain)
            let image = picture(1, url: "https://example.org/bob")
            try vault.put(slot("bob"), image)
            for _ in 0..<3 { #expect(vault.readCached(slot("bob"), framing: .bare).image?.record == image.record) }
            system.heal()
            #expect(vault.readCached(slot("bob"), framing: .bare).image?.record == image.record && system.calls == 1)
            let newer = picture(2, url: "https://example.org/bob?2")
            try vault.put(slot("bob"), newer)
            for _ in 0..<3 { #expect(vault.readCached(slot("bob"), framing: .bare).image?.record == newer.record) }
        }
    }

    /// A URL of that many bytes.
    @Test(arguments: [(100, true), (3_000, false)])
    func `I8: what is known of an image stays with its open file when it is short`(length: Int, stays: Bool) throws {
        try tree.withStore(system: system) { store in
            let vault = try store.commitLogin(alice, .plain)
            let image = picture(1, url: "https://example.org/" + String(repeating: "b", count: length - 20))
            try vault.put(slot("bob"), image)
            let found = try (0..<4).map { _ in try #require(vault.readCached(slot("bob"), framing: .bare).image).held }
            #expect(found.allSatisfy { $0.record == image.record })
            // The second look is the first whose file stays open.
            #expect((found[2] === found[1]) == stays && (found[3] === found[1]) == stays)
        }
    }

    /// As a copy that was kept of it may be put back by hand.
    @Test func `I5: an older entry that is written into the open file comes with its own record`() throws {
        try tree.withStore(system: system) { store in
            let vault = try store.commitLogin(alice, .plain)
            let (older, newer) = (picture(1), picture(2))
            try vault.put(slot("bob"), older)
            let copy = try Data(contentsOf: URL(fileURLWithPath: try #require(tree.entries.first)))
            try vault.put(slot("bob"), newer)
            for _ in 0..<2 { #expect(vault.readCached(slot("bob"), framing: .bare).image?.record == newer.record) }
            let file = open(try #require(tree.entries.first), O_RDWR)
            defer { close(file) }
            #expect(copy.withUnsafeBytes { pwrite(file, $0.baseAddress, $0.count, 0) } == copy.count)
            system.heal()
            let found = try #require(vault.readCached(slot("bob"), framing: .bare).image)
            #expect(system.calls == 1 && found.content == older.content && found.record == older.record)
        }
    }

    @Test func `I7: an image that is put over an open one is the one that is read, and the older file is closed`()
        throws
    {
        try withOpenEntry { vault, _, descriptors in
            try vault.put(slot("bob"), picture(2))
            #expect(system.descriptors == descriptors)
            #expect(readCached(vault) == picture(2).content)
        }
    }

    /// What takes an image away.
    enum Removal: CaseIterable {
        case purge, drop, eviction, rejection, logout
    }

    @Test(arguments: Removal.allCases)
    func `I3: an image that goes is read no more, and its file is closed when whatever took it away returns`(
        _ removal: Removal
    ) throws {
        try withOpenEntry { vault, store, descriptors in
            switch removal {
            case .purge: _ = try vault.remove([OpaqueID("bob")], fence: { _ in })
            case .drop: try vault.drop(slot("bob"), isCurrent: { true })
            case .eviction:
                try vault.put(slot("bob", 64), picture(2, count: 8_000))
                #expect(vault.usage?.images == 1)
            case .rejection:
                let file = open(try #require(tree.entries.first), O_RDWR)
                defer { close(file) }
                // Sealed bytes are as good as random: any byte written there might be the one that is there.
                var byte: UInt8 = 0
                #expect(pread(file, &byte, 1, 100) == 1)
                byte ^= 1
                #expect(pwrite(file, &byte, 1, 100) == 1)
                let waited = try vault.bytes(slot("bob"))
                #expect(waited == nil)
            case .logout: vault.close()
            }
            // With its last image the bucket goes, which was open, too.
            let isBucketGone = [.purge, .drop, .rejection].contains(removal)
            #expect(system.descriptors == (isBucketGone ? descriptors - 1 : descriptors))
            #expect(readCached(vault) == nil)
        }
    }

    @Test func `I1: an open image is its own user's, and its own generation's`() throws {
        try withOpenEntry { vault, store, _ in
            let others = try store.commitLogin(bob, .plain)
            vault.close()
            for other in [others, try store.commitPurge(alice)] {
                try other.put(slot("carol"), picture(3))
                #expect(readCached(other, "carol") == picture(3).content)
                #expect(readCached(other) == nil)
            }
        }
    }

    /// What can change the meaning of a name between the moment its file is opened and the moment it would be kept open.
    enum NameChange: CaseIterable {
        case put, purge, drop
    }

    @Test(arguments: NameChange.allCases)
    func `I3, I7: a file that was opened before its name changed is not kept open after`(_ change: NameChange)
        throws
    {
        try tree.withStore(system: system) { store in
            let vault = try store.commitLogin(alice, .plain)
            try vault.put(slot("bob"), picture(1))
            #expect(readCached(vault) == picture(1).content)
            let isFirst = Once()
            system.plan { call, _, _ in
                // The older file is open, and about to be read.
                guard call == .readCached, isFirst.take() else { return nil }
                do {
                    switch change {
                    case .put: try vault.put(slot("bob"), picture(2))
                    case .purge: _ = try vault.remove([OpaqueID("bob")], fence: { _ in })
                    case .drop: try vault.drop(slot("bob"), isCurrent: { true })
                    }
                } catch {
                    Issue.record(error)
                }
                return nil
            }
            // The look that the change came before, which the cache throws away.
            #expect(readCached(vault) == picture(1).content)
            #expect(readCached(vault) == (change == .put ? picture(2).content : nil))
        }
    }

    @Test func `I5: a file that is forgotten while it is being read stays open until it has been read`() throws {
        try withOpenEntry { vault, _, descriptors in
            let isFirst = Once()
            let others = NIOLockedValueBox<[Int32]>([])
            system.plan { [system] call, _, _ in
                guard call == .readCached, isFirst.take() else { return nil }
                do {
                    try vault.drop(slot("bob"), isCurrent: { true })
                } catch {
                    Issue.record(error)
                }
                // The bucket has gone with its last image.
                #expect(system.descriptors == descriptors - 1 + 1)
                // They would take the place of one that was closed.
                others.withLockedValue { $0 = (0..<8).map { _ in open("/dev/zero", O_RDONLY) } }
                return nil
            }
            #expect(readCached(vault) == picture(1).content)
            others.withLockedValue { $0.forEach { close($0) } }
            #expect(system.descriptors == descriptors - 1)
            #expect(readCached(vault) == nil)
        }
    }

    @Test(arguments: [false, true])
    func `F24: an open image that somebody unlinks, or swaps for a link to it, is none from the next second on`(
        leavesLink: Bool
    ) throws {
        try withOpenEntry { vault, _, _ in
            let path = try #require(tree.entries.first)
            #expect(rename(path, path + ".moved") == 0)
            #expect(leavesLink ? symlink(path + ".moved", path) == 0 : unlink(path + ".moved") == 0)
            tree.clock.withLockedValue { $0 += 1 }
            #expect(readCached(vault) == nil)
        }
    }

    @Test func `F14: with the clock set back an entry is opened anew`() throws {
        try withOpenEntry { vault, _, _ in
            tree.clock.withLockedValue { $0 -= 60 }
            #expect(readCached(vault) == picture(1).content)
            #expect(system.count(of: .openCached) == 1)
        }
    }

    @Test func `maintenance closes what nobody has asked for since`() throws {
        try withOpenEntry { vault, store, descriptors in
            store.maintain()
            let kept = system.descriptors
            tree.clock.withLockedValue { $0 += 1 }
            store.maintain()
            #expect(system.descriptors == kept - 1)
            #expect(readCached(vault) == picture(1).content)
        }
    }

    @Test(arguments: [0, 1, 3])
    func `I8: no more files are kept open than are allowed, and all can be read`(_ capacity: Int) throws {
        var configuration = tree.configuration()
        configuration.openEntries = capacity
        try tree.withStore(configuration, system: system) { store in
            let vault = try store.commitLogin(alice, .plain)
            for number in 0..<10 as Range<UInt8> { try vault.put(slot("\(number)"), picture(number)) }
            let descriptors = system.descriptors
            // Others come first in each second, so that they push each other out.
            for round in 0..<8 as Range<UInt8> {
                if round % 2 == 0 { tree.clock.withLockedValue { $0 += 1 } }
                for number in (0..<10 as Range<UInt8>).map({ ($0 + round * 3) % 10 }) {
                    #expect(readCached(vault, "\(number)") == picture(number).content)
                    #expect(system.descriptors <= descriptors + capacity)
                }
            }
            #expect(system.descriptors == descriptors + capacity)
        }
    }

    @Test func `an image that is looked at once in a second, as one that then is in memory, is not kept open`() throws {
        try withOpenEntry { vault, _, descriptors in
            try vault.put(slot("bob", 64), picture(2))
            for _ in 0..<3 {
                #expect(vault.readCached(slot("bob", 64), framing: .bare).image?.content == picture(2).content)
                #expect(system.descriptors == descriptors + 1)
                tree.clock.withLockedValue { $0 += 1 }
            }
        }
    }

    @Test func `I9: open images are given up when descriptors run out`() throws {
        try withOpenEntry { vault, _, descriptors in
            let isFirst = Once()
            system.plan { call, _, _ in call == .open && isFirst.take() ? .fail(EMFILE) : nil }
            let waited = try vault.bytes(slot("bob"))
            #expect(waited == picture(1).content)
            #expect(system.descriptors <= descriptors)
        }
    }

    @Test func `an open file that has left the page cache is left to a look that may wait`() throws {
        try withOpenEntry { vault, _, _ in
            system.plan { call, _, _ in call == .readCached ? .fail(EAGAIN) : nil }
            #expect(readCached(vault) == nil)
            system.heal()
            #expect(readCached(vault) == picture(1).content)
            #expect(system.calls == 1)
        }
    }
}

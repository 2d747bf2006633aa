import CacheCore
import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

/// Files of entries that stay open between reads from the page cache.
@Suite struct OpenEntriesTests {
    private let tree: TestTree
    private let system = FaultySystem()

    init() throws {
        tree = try TestTree()
    }

    /// The plain files below `users/` that this process has open.
    private var openFiles: Int {
        let users = tree.cache + "/users/"
        var path = [CChar](repeating: 0, count: Int(PATH_MAX))
        return (0..<Int32(4096)).count { descriptor in
            let length = readlink("/proc/self/fd/\(descriptor)", &path, path.count - 1)
            var status = stat()
            guard length > 0, fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return false }
            return path.prefix(length).map(UInt8.init(bitPattern:)).starts(with: users.utf8)
        }
    }

    /// Runs `body` with a generation store that contains bob's image, whose file is open.
    private func withOpenEntry(_ body: (any GenerationStore, DiskStore) throws -> Void) throws {
        try tree.withStore(tree.configuration(userQuota: 16_000), system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            #expect(openFiles == 0)
            #expect(readCached(generationStore) == testImage(1).content)
            #expect(openFiles == 1)
            system.heal()
            try body(generationStore, store)
        }
    }

    private func readCached(_ generationStore: any GenerationStore, _ profile: String = "bob") -> [UInt8]? {
        generationStore.readCached(imageKey(profile), framing: .bare).image.map(\.content)
    }

    @Test func `a hit on an open file costs preadv2, and fstat once a second`() throws {
        try withOpenEntry { generationStore, _ in
            for round in 1...3 {
                #expect(readCached(generationStore) == testImage(1).content)
                #expect(system.count(of: .readCached) == round && system.calls == round)
            }
            tree.clock.withLockedValue { $0 += 1 }
            for _ in 0..<3 { #expect(readCached(generationStore) == testImage(1).content) }
            #expect(system.count(of: .statusOfDescriptor) == 1 && system.count(of: .readCached) == 6)
            #expect(system.calls == 7)
        }
    }

    @Test(arguments: [(100, true), (3_000, false)])
    func `I8: only a short record is kept with the open file`(length: Int, isKept: Bool) throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            let image = testImage(1, url: "https://example.org/" + String(repeating: "b", count: length - 20))
            try generationStore.put(imageKey("bob"), image)
            let found = try (0..<3).map { _ in
                try #require(generationStore.readCached(imageKey("bob"), framing: .bare).image).sharedRecord
            }
            #expect(found.allSatisfy { $0.record == image.record })
            #expect((found[1] === found[0]) == isKept && (found[2] === found[0]) == isKept)
        }
    }

    @Test func `I5: an older entry that is written into the open file is read with its own record`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            let (older, newer) = (testImage(1), testImage(2))
            try generationStore.put(imageKey("bob"), older)
            let path = try #require(tree.entries.first)
            let copy = try Data(contentsOf: URL(fileURLWithPath: path))
            try generationStore.put(imageKey("bob"), newer)
            let found = generationStore.readCached(imageKey("bob"), framing: .bare).image
            #expect(found?.record == newer.record)
            let file = open(path, O_RDWR)
            defer { close(file) }
            #expect(copy.withUnsafeBytes { pwrite(file, $0.baseAddress, $0.count, 0) } == copy.count)
            system.heal()
            let image = try #require(generationStore.readCached(imageKey("bob"), framing: .bare).image)
            #expect(system.count(of: .openCached) == 0)
            #expect(image.content == older.content && image.record == older.record)
        }
    }

    @Test func `I7: after a PUT the new image is read, and the replaced file is closed`() throws {
        try withOpenEntry { generationStore, _ in
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(openFiles == 0)
            #expect(readCached(generationStore) == testImage(2).content)
        }
    }

    enum Removal: CaseIterable {
        case purge, drop, eviction, rejection, logout
    }

    @Test(arguments: Removal.allCases)
    func `I3: a removed image is not read any more, and its file is closed when the removal returns`(
        _ removal: Removal
    ) throws {
        try withOpenEntry { generationStore, _ in
            switch removal {
            case .purge: _ = try generationStore.remove([OpaqueID("bob")])
            case .drop: try generationStore.drop(imageKey("bob"), isCurrent: { true })
            case .eviction:
                try generationStore.put(imageKey("carol"), testImage(2, count: 8_000))
                #expect(generationStore.usage?.images == 1)
            case .rejection:
                #expect(truncate(try #require(tree.entries.first), 100) == 0)
                let waited = try generationStore.bytes(imageKey("bob"))
                #expect(waited == nil)
            case .logout: generationStore.close()
            }
            #expect(openFiles == 0)
            #expect(readCached(generationStore) == nil)
        }
    }

    /// The name changes, but no link count does: the replaced file could not be unlinked.
    @Test func `I7: an open file that was replaced is not read, whatever its link count`() throws {
        try withOpenEntry { generationStore, _ in
            system.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(tree.temporaries.count == 1 && openFiles == 0)
            #expect(readCached(generationStore) == testImage(2).content)
        }
    }

    @Test func `I3: an open file that was moved away by hand is not read after a purge of its profile`() throws {
        try withOpenEntry { generationStore, _ in
            let path = try #require(tree.entries.first)
            #expect(rename(path, tree.root + "/moved") == 0)
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(openFiles == 0)
            #expect(readCached(generationStore) == nil)
        }
    }

    /// The call of a reader during which a PUT happens, or the call of a PUT during which a read happens.
    enum Moment: CaseIterable {
        case openedBeforeChange, beforeSwap, afterSwap
    }

    /// The replaced file keeps its name and its link count, as between the swap and the removal.
    @Test(arguments: Moment.allCases)
    func `I3, I7: a file that was opened before or during a change of its name is not kept open`(
        _ moment: Moment
    ) throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            let once = Once()
            let during = NIOLockedValueBox<[UInt8]?>(nil)
            system.plan { call, _, _ in
                switch (moment, call) {
                case (.openedBeforeChange, .readCached):
                    if once.isFirst() { expectSuccess { try generationStore.put(imageKey("bob"), testImage(2)) } }
                case (.beforeSwap, .exchange), (.afterSwap, .unlink):
                    if once.isFirst() {
                        let found = readCached(generationStore)
                        during.withLockedValue { $0 = found }
                    }
                default: break
                }
                return call == .unlink ? .fail(EIO) : nil
            }
            if moment == .openedBeforeChange {
                // UserCache discards this result.
                #expect(readCached(generationStore) == testImage(1).content)
            } else {
                try generationStore.put(imageKey("bob"), testImage(2))
                #expect(during.withLockedValue { $0 } == testImage(moment == .beforeSwap ? 1 : 2).content)
            }
            #expect(!once.isFirst() && openFiles == 0)
            #expect(readCached(generationStore) == testImage(2).content)
        }
    }

    @Test func `I5: a file that is removed while it is being read stays open until it has been read`() throws {
        try withOpenEntry { generationStore, _ in
            let once = Once()
            let others = NIOLockedValueBox<[Int32]>([])
            system.plan { call, _, _ in
                guard call == .readCached, once.isFirst() else { return nil }
                expectSuccess { try generationStore.drop(imageKey("bob"), isCurrent: { true }) }
                // These would reuse the descriptor if it were closed.
                others.withLockedValue { $0 = (0..<8).map { _ in open("/dev/zero", O_RDONLY) } }
                return nil
            }
            #expect(readCached(generationStore) == testImage(1).content)
            others.withLockedValue { $0.forEach { close($0) } }
            #expect(openFiles == 0)
            #expect(readCached(generationStore) == nil)
        }
    }

    /// - Parameter step: seconds by which the clock changes.
    @Test(arguments: [false, true], [1, -1, -10] as [Int64])
    func `F24, F26: an open file that is unlinked or linked by hand is closed once the second has changed`(
        isLinked: Bool, step: Int64
    ) throws {
        try withOpenEntry { generationStore, _ in
            let path = try #require(tree.entries.first)
            #expect((isLinked ? link(path, tree.root + "/link") : unlink(path)) == 0)
            tree.clock.withLockedValue { $0 += step }
            #expect(readCached(generationStore) == nil)
            #expect(openFiles == 0)
        }
    }

    @Test func `a use to be recorded is left to a blocking read of an open file as well`() throws {
        try withOpenEntry { generationStore, _ in
            tree.clock.withLockedValue { $0 += 7_200 }
            #expect(readCached(generationStore) == nil)
            _ = try generationStore.bytes(imageKey("bob"))
            #expect(system.count(of: .touch) == 1)
            #expect(readCached(generationStore) == testImage(1).content)
        }
    }

    @Test func `I1: an open file is read for its own user and generation only`() throws {
        try withOpenEntry { generationStore, store in
            let other = try store.commitLogin(bob, .plain)
            try other.put(imageKey("carol"), testImage(3))
            #expect(readCached(other, "carol") == testImage(3).content && readCached(other) == nil)
            #expect(openFiles == 2)
            generationStore.close()
            // Only the files of the closed generation are closed.
            #expect(openFiles == 1)
            let renewed = try store.commitPurge(alice)
            #expect(readCached(renewed) == nil)
        }
    }

    @Test(arguments: [0, 1, 3])
    func `I8: at most the permitted number of files is open, and all images are read`(_ capacity: Int) throws {
        var configuration = tree.configuration()
        configuration.openEntries = capacity
        try tree.withStore(configuration, system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for number in 0..<10 as Range<UInt8> { try generationStore.put(imageKey("\(number)"), testImage(number)) }
            for round in 0..<4 as Range<UInt8> {
                for number in (0..<10 as Range<UInt8>).map({ ($0 + round * 3) % 10 }) {
                    #expect(readCached(generationStore, "\(number)") == testImage(number).content)
                    #expect(openFiles <= capacity)
                }
            }
            #expect(openFiles == capacity)
        }
    }

    @Test func `F15, I9: open files are closed when descriptors run out`() throws {
        try withOpenEntry { generationStore, _ in
            let once = Once()
            system.plan { call, _, _ in call == .open && once.isFirst() ? .fail(EMFILE) : nil }
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == testImage(1).content)
            #expect(openFiles == 0)
        }
    }

    @Test func `an open file that is not in the page cache is left to a blocking read`() throws {
        try withOpenEntry { generationStore, _ in
            system.plan { call, _, _ in call == .readCached ? .fail(EAGAIN) : nil }
            #expect(readCached(generationStore) == nil)
            system.heal()
            #expect(readCached(generationStore) == testImage(1).content)
            #expect(system.count(of: .openCached) == 0)
        }
    }
}

import CacheCore
import DiskStore
import Foundation
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

/// Reads that never block, for event loops: from the kernel's caches only.
@Suite struct CachedReadTests {
    private let tree: TestTree
    private let system = FaultySystem()

    init() throws {
        tree = try TestTree()
    }

    /// Runs `body` with a generation store that contains bob's image, with its directories open.
    private func withGenerationStore(_ body: (any GenerationStore) throws -> Void) throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            system.heal()
            try body(generationStore)
        }
    }

    private func readCached(_ generationStore: any GenerationStore, _ profile: String = "bob") -> [UInt8]? {
        generationStore.readCached(imageKey(profile), framing: .bare).image.map(\.content)
    }

    @Test func `I5: an image in the page cache is read and verified, with record and frame`() throws {
        try withGenerationStore { generationStore in
            let found = try #require(generationStore.readCached(imageKey("bob"), framing: .bulk).image)
            #expect(found.record == testImage(1).record && found.content == testImage(1).content)
            #expect(
                Array(found.bytes.framed.readableBytesView)
                    == Array("$1000\r\n".utf8) + testImage(1).content + Array("\r\n".utf8))
            #expect(system.count(of: .open) == 0 && system.count(of: .read) == 0)
        }
    }

    @Test(arguments: [true, false])
    func `the buffer of an image that was sent is used for the next image from disk`(isCached: Bool) throws {
        try withGenerationStore { generationStore in
            let image = testImage(2, count: 8_000)
            try generationStore.put(imageKey("carol"), image)
            func read() throws -> ByteBuffer? {
                guard isCached else { return try generationStore.read(imageKey("carol"), framing: .bare)?.bytes.framed }
                return generationStore.readCached(imageKey("carol"), framing: .bare).image?.bytes.framed
            }
            tree.buffers.giveBack(try #require(try read()))
            let size = tree.buffers.bytes
            let again = try #require(try read())
            #expect(size > 8_000 && tree.buffers.bytes == 0 && again.storageCapacity == size)
            #expect(Array(again.readableBytesView) == image.content)
        }
    }

    @Test func `an image that is too large for the pool has a buffer of its own size, less than 1 KiB more`() throws {
        try withGenerationStore { generationStore in
            let image = testImage(2, count: 70_000)
            try generationStore.put(imageKey("carol"), image)
            let framed = try #require(try generationStore.read(imageKey("carol"), framing: .bare)).bytes.framed
            #expect(framed.storageCapacity < 71_000)
            #expect(Array(framed.readableBytesView) == image.content)
        }
    }

    @Test func `a record is read without an effect on the entry`() throws {
        try withGenerationStore { generationStore in
            tree.clock.withLockedValue { $0 += 7_200 }
            #expect(try generationStore.record(of: imageKey("bob")) == testImage(1).record)
            #expect(try generationStore.record(of: imageKey("eve")) == nil)
            #expect(system.count(of: .touch) == 0 && system.count(of: .unlink) == 0)
            let path = try #require(tree.entries.first)
            try Data("torn".utf8).write(to: URL(fileURLWithPath: path))
            #expect(try generationStore.record(of: imageKey("bob")) == nil)
            #expect(tree.entries == [path])
            generationStore.close()
            #expect(throws: StoreError.closed) { try generationStore.record(of: imageKey("bob")) }
        }
    }

    @Test(arguments: [SystemCall.openCached, .readCached])
    func `F8: an image that is not cached is unknown, and neither rejected nor removed`(_ call: SystemCall) throws {
        try withGenerationStore { generationStore in
            system.plan { made, _, _ in made == call ? .fail(EAGAIN) : nil }
            #expect(readCached(generationStore) == nil)
            // The next read may succeed.
            system.heal()
            #expect(readCached(generationStore) == testImage(1).content)
        }
    }

    @Test func `a partly cached image is unknown`() throws {
        try withGenerationStore { generationStore in
            system.plan { made, _, _ in made == .readCached ? .short : nil }
            #expect(readCached(generationStore) == nil)
            system.heal()
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == testImage(1).content)
        }
    }

    @Test(arguments: [EOPNOTSUPP, ENOSYS, EINVAL, EPERM])
    func `an unsupported call is not repeated`(_ code: Int32) throws {
        try withGenerationStore { generationStore in
            system.plan { made, _, _ in made == .readCached ? .fail(code) : nil }
            #expect(readCached(generationStore) == nil)
            system.heal()
            #expect(readCached(generationStore) == nil)
            #expect(system.calls == 0)
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == testImage(1).content)
        }
    }

    @Test func `F24: neither an entry nor a bucket that is a link is followed`() throws {
        let machine = LinuxFileSystem()
        try tree.withStore(system: machine) { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        }
        let entry = try #require(tree.entries.first).split(separator: "/").map(String.init)
        let generation = "/" + entry.dropLast(2).joined(separator: "/")
        let bucket = entry[entry.count - 2]
        #expect(
            symlink(bucket, "\(generation)/link") == 0 && symlink(entry.last ?? "", "\(generation)/\(bucket)/link") == 0
        )
        let directory = open(generation, O_RDONLY | O_DIRECTORY)
        defer { close(directory) }
        #expect(throws: SystemError.self) {
            _ = try machine.openCached(FileName("../\(entry[entry.count - 3])/\(bucket)"), in: directory)
        }
        // An error other than EAGAIN, which would mean that the kernel would block.
        for path in ["link/\(entry.last ?? "")", "\(bucket)/link"] {
            let error = #expect(throws: SystemError.self) { _ = try machine.openCached(FileName(path), in: directory) }
            #expect(error?.code == ELOOP, "\(path)")
        }
    }

    /// The result of a lookup as a word.
    private func describe(_ generationStore: any GenerationStore, _ profile: String, size: UInt16 = 0) -> String {
        switch generationStore.readCached(imageKey(profile, size), framing: .bare) {
        case .image: "image"
        case .nothing: "nothing"
        case .unknown: "unknown"
        }
    }

    @Test func `a bucket into which nothing was written is known to be empty`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            system.heal()
            #expect(describe(generationStore, "bob") == "nothing" && system.calls == 0)
            try generationStore.put(imageKey("bob"), testImage(1))
            #expect(describe(generationStore, "bob") == "image")
            // Another size is in the same bucket; another profile rarely is.
            #expect(describe(generationStore, "bob", size: 64) == "unknown")
            #expect((0..<400).count { describe(generationStore, "\($0)") == "nothing" } > 300)
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(describe(generationStore, "bob") == "unknown")
        }
    }

    @Test func `buckets are known to be empty in a generation created by a purge, but not in one found at the start`()
        throws
    {
        try tree.withStore(system: system) { store in
            try store.commitLogin(alice, LoginRecord(sessions: [OpaqueID("kept")], loggedInAt: 0)).put(
                imageKey("bob"), testImage(1))
        }
        try tree.withStore(system: system) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(describe(generationStore, "nobody") == "unknown")
            generationStore.close()
            #expect(describe(try store.commitPurge(alice), "nobody") == "nothing")
        }
    }

    @Test func `I7: a bucket is not known to be empty from before the commit of an image`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            let seen = NIOLockedValueBox<[String]>([])
            system.plan { call, _, _ in
                if call == .rename { seen.withLockedValue { $0.append(describe(generationStore, "bob")) } }
                return nil
            }
            try generationStore.put(imageKey("bob"), testImage(1))
            #expect(seen.withLockedValue { $0 } == ["unknown"])
        }
    }

    @Test func `I3: a closed generation store reports unknown`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            generationStore.close()
            #expect(describe(generationStore, "bob") == "unknown")
        }
    }

    @Test func `I5: an invalid entry is left to a blocking read, which rejects it`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            let path = try #require(tree.entries.first)
            let file = open(path, O_RDWR)
            defer { close(file) }
            // Encrypted bytes are random, so the replacement must differ from the present one.
            var byte: UInt8 = 0
            #expect(pread(file, &byte, 1, 100) == 1)
            byte ^= 1
            #expect(pwrite(file, &byte, 1, 100) == 1)
            #expect(readCached(generationStore) == nil)
            #expect(tree.entries == [path] && store.counters[.rejectedEntries] == 0)
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == nil)
            #expect(tree.entries == [] && store.counters[.rejectedEntries] == 1)
        }
    }

    @Test func `a large image is left to a blocking read`() throws {
        try withGenerationStore { generationStore in
            try generationStore.put(imageKey("carol"), testImage(2, count: 1 << 20))
            #expect(readCached(generationStore, "carol") == nil)
        }
    }

    @Test func `a use to be recorded is left to a blocking read`() throws {
        try withGenerationStore { generationStore in
            tree.clock.withLockedValue { $0 += 7_200 }
            #expect(readCached(generationStore) == nil)
            #expect(system.count(of: .touch) == 0)
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == testImage(1).content)
            #expect(system.count(of: .touch) == 1)
            #expect(readCached(generationStore) == testImage(1).content)
        }
    }

    @Test func `I3: a closed generation store returns no image`() throws {
        try withGenerationStore { generationStore in
            generationStore.close()
            #expect(readCached(generationStore) == nil)
            #expect(system.calls == 0)
        }
    }

    @Test func `the real system calls return the bytes or EAGAIN`() throws {
        let machine = LinuxFileSystem()
        try tree.withStore(system: machine) { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        }
        let path = try #require(tree.entries.first)
        let end = try #require(path.lastIndex(of: "/"))
        let directory = open(String(path[..<end]), O_RDONLY | O_DIRECTORY)
        defer { close(directory) }
        #expect(throws: SystemError.self) { _ = try machine.openCached("nothing", in: directory) }
        do {
            let file = try machine.openCached(FileName(String(path[path.index(after: end)...])), in: directory)
            defer { close(file) }
            var bytes = [UInt8](repeating: 0, count: 3)
            let count = try bytes.withUnsafeMutableBytes { try machine.readCached(file, into: $0, at: 0) }
            #expect(count == 3 && bytes == Array("TCE".utf8))
        } catch let error as SystemError {
            #expect([EAGAIN, EOPNOTSUPP, ENOSYS].contains(error.code), "\(error)")
        }
    }
}

import CacheCore
import DiskStore
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

/// Looks that never wait: on an event loop, at what the kernel holds in memory.
@Suite struct CachedReadTests {
    private let tree: TestTree
    private let system = FaultySystem()

    init() throws {
        tree = try TestTree()
    }

    /// A generation store with bob's picture in it, and its directories open.
    private func withGenerationStore(_ body: (any GenerationStore) throws -> Void) throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
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
            #expect(found.record == picture(1).record && found.content == picture(1).content)
            #expect(
                Array(found.bytes.framed.readableBytesView)
                    == Array("$1000\r\n".utf8) + picture(1).content + Array("\r\n".utf8))
            #expect(system.count(of: .open) == 0 && system.count(of: .read) == 0)
        }
    }

    @Test(arguments: [SystemCall.openCached, .readCached])
    func `F8: what is not in memory is nothing, and is neither rejected nor removed`(_ call: SystemCall) throws {
        try withGenerationStore { generationStore in
            system.plan { made, _, _ in made == call ? .fail(EAGAIN) : nil }
            #expect(readCached(generationStore) == nil)
            // Another time it may be.
            system.heal()
            #expect(readCached(generationStore) == picture(1).content)
        }
    }

    @Test func `what is in memory in part only is nothing`() throws {
        try withGenerationStore { generationStore in
            system.plan { made, _, _ in made == .readCached ? .short : nil }
            #expect(readCached(generationStore) == nil)
            system.heal()
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == picture(1).content)
        }
    }

    @Test(arguments: [EOPNOTSUPP, ENOSYS, EINVAL, EPERM])
    func `a kernel or file system that cannot tell is not asked again`(_ code: Int32) throws {
        try withGenerationStore { generationStore in
            system.plan { made, _, _ in made == .readCached ? .fail(code) : nil }
            #expect(readCached(generationStore) == nil)
            system.heal()
            #expect(readCached(generationStore) == nil)
            #expect(system.calls == 0)
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == picture(1).content)
        }
    }

    @Test func `F24: neither an entry nor a bucket that is a link is followed`() throws {
        let machine = LinuxFileSystem()
        try tree.withStore(system: machine) { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
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
        // Links for what they are: that the kernel would have to wait (EAGAIN) is no refusal of them.
        for path in ["link/\(entry.last ?? "")", "\(bucket)/link"] {
            let error = #expect(throws: SystemError.self) { _ = try machine.openCached(FileName(path), in: directory) }
            #expect(error?.code == ELOOP, "\(path)")
        }
    }

    /// What can be told of an image key, in a word.
    private func told(_ generationStore: any GenerationStore, _ profile: String, size: UInt16 = 0) -> String {
        switch generationStore.readCached(imageKey(profile, size), framing: .bare) {
        case .image: "image"
        case .nothing: "nothing"
        case .unknown: "unknown"
        }
    }

    @Test func `where nothing was ever put there is nothing, and nobody need ask the disk`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            system.heal()
            #expect(told(generationStore, "bob") == "nothing" && system.calls == 0)
            try generationStore.put(imageKey("bob"), picture(1))
            #expect(told(generationStore, "bob") == "image")
            // Another size is in the same one of 256 places, another profile hardly ever.
            #expect(told(generationStore, "bob", size: 64) == "unknown")
            #expect((0..<400).count { told(generationStore, "\($0)") == "nothing" } > 300)
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(told(generationStore, "bob") == "unknown")
        }
    }

    @Test func `of what was there before the start only the disk can tell; after a purge nothing is there again`()
        throws
    {
        try tree.withStore(system: system) { store in
            try store.commitLogin(alice, LoginRecord(sessions: [OpaqueID("kept")], loggedInAt: 0)).put(
                imageKey("bob"), picture(1))
        }
        try tree.withStore(system: system) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(told(generationStore, "nobody") == "unknown")
            generationStore.close()
            #expect(told(try store.commitPurge(alice), "nobody") == "nothing")
        }
    }

    @Test func `I7: before an image appears it is no longer said that there is none`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            let seen = NIOLockedValueBox<[String]>([])
            system.plan { call, _, _ in
                if call == .rename { seen.withLockedValue { $0.append(told(generationStore, "bob")) } }
                return nil
            }
            try generationStore.put(imageKey("bob"), picture(1))
            #expect(seen.withLockedValue { $0 } == ["unknown"])
        }
    }

    @Test func `I3: of a closed generationStore nothing is said, not even that it is empty`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            generationStore.close()
            #expect(told(generationStore, "bob") == "unknown")
        }
    }

    @Test func `I5: a bad entry is left to a look that may wait, which rejects it`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            let path = try #require(tree.entries.first)
            let file = open(path, O_RDWR)
            defer { close(file) }
            // Sealed bytes are as good as random: any byte written there might be the one that is there.
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

    @Test func `an image that takes long to open is left to the pool`() throws {
        try withGenerationStore { generationStore in
            try generationStore.put(imageKey("carol"), picture(2, count: 1 << 20))
            #expect(readCached(generationStore, "carol") == nil)
        }
    }

    @Test func `a use that is to be noted is left to a look that may wait, and then it need not be`() throws {
        try withGenerationStore { generationStore in
            tree.clock.withLockedValue { $0 += 7_200 }
            #expect(readCached(generationStore) == nil)
            #expect(system.count(of: .touch) == 0)
            let waited = try generationStore.bytes(imageKey("bob"))
            #expect(waited == picture(1).content)
            #expect(system.count(of: .touch) == 1)
            #expect(readCached(generationStore) == picture(1).content)
        }
    }

    @Test func `I3: a closed generationStore shows nothing`() throws {
        try withGenerationStore { generationStore in
            generationStore.close()
            #expect(readCached(generationStore) == nil)
            #expect(system.calls == 0)
        }
    }

    @Test func `the machine's own calls give the bytes, or say that they would have to wait`() throws {
        let machine = LinuxFileSystem()
        try tree.withStore(system: machine) { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
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

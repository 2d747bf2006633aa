import CacheCore
import DiskStore
import Foundation
import Testing

private func write(_ bytes: [UInt8], to path: String) throws {
    try Data(bytes).write(to: URL(fileURLWithPath: path))
}

private func contents(of path: String) throws -> [UInt8] {
    Array(try Data(contentsOf: URL(fileURLWithPath: path)))
}

@Test func `F10, I5: an entry truncated at any length is a miss, removed and counted`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1, count: 100))
        // Keeps the bucket from being removed.
        try generationStore.put(imageKey("bob", 1), testImage(1))
        let path = try #require(tree.entries.first)
        let whole = try contents(of: path)
        for length in 0..<whole.count {
            try write(Array(whole[..<length]), to: path)
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            #expect(!FileManager.default.fileExists(atPath: path), "cut at \(length)")
            #expect(store.counters[.rejectedEntries] == length + 1)
        }
        try write(whole + [0], to: path)
        #expect(try generationStore.bytes(imageKey("bob")) == nil)
        try write(whole, to: path)
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1, count: 100).content)
    }
}

@Test func `F11, I5: an entry with any bit flipped is a miss, removed and counted`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1, count: 40, url: "u"))
        // Keeps the bucket from being removed.
        try generationStore.put(imageKey("bob", 1), testImage(1))
        let path = try #require(tree.entries.first)
        let whole = try contents(of: path)
        for bit in 0..<(whole.count * 8) {
            var flipped = whole
            flipped[bit / 8] ^= 1 << UInt8(bit % 8)
            try write(flipped, to: path)
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            #expect(!FileManager.default.fileExists(atPath: path), "bit \(bit)")
        }
        #expect(store.counters[.rejectedEntries] == whole.count * 8)
        try write(whole, to: path)
        #expect(try generationStore.bytes(imageKey("bob")) != nil)
    }
}

@Test func `F12: an entry copied to another profile, size, user, uid or generation is a miss`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob", 64), testImage(1))
        let original = try contents(of: try #require(tree.entries.first))

        /// Returns the path of the entry written next.
        func placeOfNext(_ generationStore: any GenerationStore, _ imageKey: ImageKey) throws -> String {
            let before = Set(tree.entries)
            try generationStore.put(imageKey, testImage(9))
            return try #require(Set(tree.entries).subtracting(before).first)
        }
        let others: [(any GenerationStore, ImageKey)] = [
            (generationStore, imageKey("eve", 64)),
            (generationStore, imageKey("bob", 65)),
            (generationStore, imageKey("bob")),
            (try store.commitLogin(bob, .plain), imageKey("bob", 64)),
            (try store.commitLogin(Owner(uid: 1001, user: alice.user), .plain), imageKey("bob", 64)),
        ]
        for (index, (other, imageKey)) in others.enumerated() {
            try write(original, to: try placeOfNext(other, imageKey))
            #expect(try other.bytes(imageKey) == nil, "case \(index)")
        }
        generationStore.close()
        let renewed = try store.commitPurge(alice)
        try write(original, to: try placeOfNext(renewed, imageKey("bob", 64)))
        #expect(try renewed.bytes(imageKey("bob", 64)) == nil)
        #expect(store.counters[.rejectedEntries] == others.count + 1)
    }
}

@Test func `I5: an invalid entry that has been replaced is not removed`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        // A writer replaces the entry after its read fails and before it is removed.
        let isDue = Once()
        system.plan { call, _, _ in
            guard call == .read, isDue.isFirst() else { return nil }
            #expect(throws: Never.self) { try generationStore.put(imageKey("bob"), testImage(2)) }
            return .fail(EIO)
        }
        #expect(try generationStore.bytes(imageKey("bob")) == nil)
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
        #expect(generationStore.usage?.images == 1)
    }
}

@Test func `F6: an unreadable entry is a miss, removed and counted`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        system.plan { call, _, _ in call == .read ? .fail(EIO) : nil }
        #expect(try generationStore.bytes(imageKey("bob")) == nil)
        #expect(tree.entries.isEmpty)
        #expect(store.counters[.rejectedEntries] == 1)
        #expect(generationStore.usage?.images == 0)
    }
}

@Test(arguments: [EMFILE, ENFILE, ENOMEM, EIO])
func `I9: an entry that cannot be opened is a miss and stays`(code: Int32) throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        system.plan { call, _, _ in call == .open ? .fail(code) : nil }
        #expect(try generationStore.bytes(imageKey("bob")) == nil)
        #expect(store.counters[.failedReads] == 1)
        system.heal()
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        #expect(store.counters[.rejectedEntries] == 0)
    }
}

@Test func `I9: without descriptors, cached directories are closed and the hit is served`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        system.plan { call, _, ofKind in call == .open && ofKind == 1 ? .fail(EMFILE) : nil }
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
    }
}

@Test func `F9: short and interrupted calls are completed`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    let interruptible: Set<SystemCall> = [.open, .read, .write, .sync, .lock, .list]
    system.plan { call, _, ofKind in
        guard interruptible.contains(call) else { return nil }
        return ofKind % 3 == 0 ? .fail(EINTR) : .short
    }
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        generationStore.close()
        try store.commitPurge(alice).put(imageKey("bob"), testImage(2))
        store.maintain()
    }
    try tree.withStore(system: system) { store in
        let login = try #require(try store.load(alice))
        #expect(try login.generationStore.bytes(imageKey("bob")) == testImage(2).content)
        try store.commitLogout(alice)
        #expect(tree.keyFiles.isEmpty)
    }
}

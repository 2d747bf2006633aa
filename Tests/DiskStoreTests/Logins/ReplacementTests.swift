import CacheCore
import DiskStore
import NIOConcurrencyHelpers
import Testing

/// Reads an image of alice's while its entry changes between open and fstat.
/// - Returns: the image, and the number of rejected entries.
private func read(
    _ times: Int = 1,
    while body: @escaping @Sendable (_ generationStore: any GenerationStore, _ round: Int) throws -> Void
) throws -> (bytes: [UInt8]?, rejected: Int) {
    let tree = try TestTree()
    let system = FaultySystem()
    var seen: (bytes: [UInt8]?, rejected: Int) = (nil, 0)
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(0))
        let failures = NIOLockedValueBox<[any Error]>([])
        let rounds = NIOLockedValueBox(0)
        system.plan { call, _, _ in
            guard call == .statusOfDescriptor else { return nil }
            let round = rounds.withLockedValue { rounds -> Int? in
                guard rounds < times else { return nil }
                rounds += 1
                return rounds
            }
            do {
                if let round { try body(generationStore, round) }
            } catch {
                failures.withLockedValue { $0.append(error) }
            }
            return nil
        }
        let bytes = try generationStore.bytes(imageKey("bob"))
        system.heal()
        if let failure = failures.withLockedValue({ $0.first }) { throw failure }
        seen = (bytes, store.counters[.rejectedEntries])
    }
    return seen
}

@Test func `I5, I7: a read during a replacement returns the new image and rejects nothing`() throws {
    let read = try read { generationStore, _ in try generationStore.put(imageKey("bob"), testImage(1)) }
    #expect(read.bytes == testImage(1).content)
    #expect(read.rejected == 0)
}

@Test func `I5: a read during a removal is a miss and rejects nothing`() throws {
    let read = try read { generationStore, _ in _ = try generationStore.remove([OpaqueID("bob")]) }
    #expect(read.bytes == nil)
    #expect(read.rejected == 0)
}

@Test func `I8: a read gives up after several replacements`() throws {
    let read = try read(1_000) { generationStore, round in
        try generationStore.put(imageKey("bob"), testImage(UInt8(round & 0xFF)))
    }
    #expect(read.bytes == nil)
    #expect(read.rejected == 0)
}

@Test func `I3, F1: a purge of a profile removes an image replaced in a killed run`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(0))
        system.plan { call, _, _ in call == .exchange ? .dieAfter : nil }
        #expect(throws: (any Error).self) { try generationStore.put(imageKey("bob"), testImage(1)) }
    }
    #expect(tree.temporaries.count == 1)
    // Before maintenance runs.
    try tree.withStore { store in
        let generationStore = try #require(try store.load(alice)).generationStore
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        _ = try generationStore.remove([OpaqueID("bob")])
        #expect(tree.temporaries.isEmpty && tree.entries.isEmpty)
    }
}

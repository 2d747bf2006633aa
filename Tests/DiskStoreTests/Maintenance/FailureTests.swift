import CacheCore
import DiskStore
import Glibc
import Testing

@Test func `F7: after a failed fsync the directory is changed before the next one`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        _ = try store.commitLogin(alice, .plain)
        // In a logout, the first fsync is that of the key file, the second that of its directory.
        system.plan { call, _, ofKind in call == .sync && ofKind == 2 ? .fail(EIO) : nil }
        #expect(throws: StoreError.failed("logging out: fsync: EIO (Input/output error)")) {
            try store.commitLogout(alice)
        }
        #expect(tree.keyFiles.isEmpty)
        let changes = Recorder()
        system.plan { call, _, _ in
            changes.note(call)
            return nil
        }
        try store.commitLogout(alice)
        let seen = changes.calls
        let sync = try #require(seen.firstIndex(of: .sync))
        #expect(seen[..<sync].contains(.unlink))
        #expect(tree.temporaries.isEmpty)
    }
}

@Test func `F4: on a full disk hits are served, PUT fails, and PURGE and LOGOUT use the reserve`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    @Sendable func hasReserve() -> Bool {
        tree.files(under: tree.state + "/keys").contains { $0.hasSuffix("/reserve") }
    }
    try tree.withStore(system: system) { store in
        for owner in [alice, bob] { try store.commitLogin(owner, .plain).put(imageKey("bob"), testImage(1)) }
        store.maintain()
        #expect(hasReserve())
        system.plan { call, _, _ in call == .write && hasReserve() ? .fail(ENOSPC) : nil }
        let generationStore = try #require(try store.load(alice)).generationStore
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        #expect(throws: StoreError.noSpace("writing an image: pwrite: ENOSPC (No space left on device)")) {
            try generationStore.put(imageKey("eve"), testImage(2))
        }
        #expect(throws: StoreError.noSpace("logging in: pwrite: ENOSPC (No space left on device)")) {
            _ = try store.commitLogin(carol, .plain)
        }
        #expect(hasReserve())
        generationStore.close()
        #expect(try store.commitPurge(alice).bytes(imageKey("bob")) == nil)
        try store.commitLogout(bob)
        #expect(try store.users(of: 1000) == [alice.user])
        #expect(!hasReserve())
        system.heal()
        store.maintain()
        #expect(hasReserve())
        #expect(tree.temporaries.isEmpty)
    }
}

@Test func `F4: without the reserve, a purge makes room by deleting the user's images`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<10 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
        system.plan { call, _, _ in call == .write && tree.files(under: tree.cache).count > 5 ? .fail(ENOSPC) : nil }
        generationStore.close()
        let renewed = try store.commitPurge(alice)
        try renewed.put(imageKey("new"), testImage(2))
        #expect(try renewed.bytes(imageKey("new")) == testImage(2).content)
        generationStore.discard()
        #expect(tree.entries.count == 1)
    }
}

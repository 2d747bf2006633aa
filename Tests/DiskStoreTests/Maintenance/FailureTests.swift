import DiskStore
import Glibc
import Testing
import ThumbnailCache

private func storeError(_ body: () throws -> Void) -> StoreError? {
    do {
        try body()
        return nil
    } catch {
        return error as? StoreError
    }
}

/// Every call of an operation fails once, each in its turn; the operation says so or succeeds, and when it is tried
/// again it succeeds.
private func failEveryCall(
    _ code: Int32, of operation: (DiskStore) throws -> Void,
    then check: (DiskStore, TestTree, _ hasFailed: Bool) throws -> Void
) throws -> Int {
    var number = 1
    while true {
        let tree = try TestTree()
        let system = FaultySystem()
        var isReached = true
        try tree.withStore(system: system) { store in
            try store.commitLogin(alice, .plain).put(slot("bob"), picture(1))
            let last = number
            system.plan { _, call, _ in call == last ? .fail(code) : nil }
            let hasFailed = storeError { try operation(store) } != nil
            isReached = system.calls >= number
            system.heal()
            try check(store, tree, hasFailed)
        }
        if !isReached { return number }
        number += 1
    }
}

@Test(arguments: [EIO, ENOSPC, EDQUOT, EROFS, EMFILE])
func `F4, F7, F8, F61: a purge that fails at any call gives no receipt, and the next attempt is whole`(
    code: Int32
) throws {
    let calls = try failEveryCall(code) { store in
        _ = try store.commitPurge(alice)
    } then: { store, tree, hasFailed in
        let vault = hasFailed ? try store.commitPurge(alice) : try #require(try store.load(alice)).vault
        #expect(try vault.bytes(slot("bob")) == nil)
        try vault.put(slot("eve"), picture(2))
        #expect(try vault.bytes(slot("eve")) == picture(2).content)
        #expect(tree.temporaries.isEmpty)
        store.shutdown()
        try tree.withStore { store in
            let login = try #require(try store.load(alice))
            #expect(login.record == .plain)
            #expect(try login.vault.bytes(slot("bob")) == nil)
            #expect(try login.vault.bytes(slot("eve")) == picture(2).content)
        }
    }
    #expect(calls > 5)
}

@Test(arguments: [EIO, ENOSPC, EROFS, EMFILE])
func `F7, F8: a log-out that fails at any call gives no receipt, and the next attempt is whole`(code: Int32) throws {
    let calls = try failEveryCall(code) { store in
        try store.commitLogout(alice)
    } then: { store, tree, hasFailed in
        if hasFailed { try store.commitLogout(alice) }
        #expect(tree.keyFiles.isEmpty)
        #expect(try store.load(alice) == nil)
        #expect(tree.temporaries.isEmpty)
        store.shutdown()
        try tree.withStore { store in
            try #require(try store.users(of: 1000) == [])
            store.maintain()
            #expect(tree.entries.isEmpty)
            #expect(tree.sessionFiles.isEmpty)
        }
    }
    #expect(calls > 5)
}

@Test(arguments: [EIO, ENOSPC, EMFILE])
func `a log-in that fails at any call leaves nobody logged in, and the next attempt is whole`(code: Int32) throws {
    let calls = try failEveryCall(code) { store in
        _ = try store.commitLogin(carol, .plain)
    } then: { store, tree, hasFailed in
        #expect(try (store.load(carol) == nil) == hasFailed)
        #expect(tree.temporaries.isEmpty)
        let vault = try hasFailed ? store.commitLogin(carol, .plain) : #require(try store.load(carol)).vault
        try vault.put(slot("eve"), picture(2))
        #expect(try vault.bytes(slot("eve")) == picture(2).content)
    }
    #expect(calls > 5)
}

@Test(arguments: [EIO, ENOSPC, EDQUOT, EROFS, EMFILE])
func `F4, F5: a write that fails at any call leaves the old image or the new, and behind the next no other file`(
    code: Int32
) throws {
    let calls = try failEveryCall(code) { store in
        try #require(try store.load(alice)).vault.put(slot("bob"), picture(2))
    } then: { store, tree, hasFailed in
        let vault = try #require(try store.load(alice)).vault
        let found = try vault.bytes(slot("bob"))
        // On a full disk the user's own images make room, the old one of this slot among them.
        #expect(found == picture(hasFailed ? 1 : 2).content || (code == ENOSPC || code == EDQUOT) && found == nil)
        #expect(vault.usage?.images == (found == nil ? 0 : 1))
        // What could not be unlinked goes first of all.
        try vault.put(slot("eve"), picture(3))
        #expect(tree.temporaries.isEmpty)
    }
    #expect(calls > 5)
}

@Test(arguments: [EIO, EROFS])
func `a purge of profiles that fails at any call gives no receipt, and the next attempt is whole`(code: Int32) throws {
    let calls = try failEveryCall(code) { store in
        let vault = try #require(try store.load(alice)).vault
        _ = try vault.remove([OpaqueID("bob")])
    } then: { store, tree, hasFailed in
        let vault = try #require(try store.load(alice)).vault
        if hasFailed { _ = try vault.remove([OpaqueID("bob")]) }
        #expect(try vault.bytes(slot("bob")) == nil)
        #expect(vault.usage == Usage())
        #expect(tree.temporaries.isEmpty)
    }
    #expect(calls > 3)
}

@Test func `F7: after an fsync that failed the directory is changed anew before the next`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        _ = try store.commitLogin(alice, .plain)
        // Of a log-out the first fsync is the key file's, the second its directory's.
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

@Test func `F4: on a full disk hits are served, PUT says so, and the reserve lets PURGE and LOGOUT through`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    @Sendable func hasReserve() -> Bool {
        tree.files(under: tree.state + "/keys").contains { $0.hasSuffix("/reserve") }
    }
    try tree.withStore(system: system) { store in
        for owner in [alice, bob] { try store.commitLogin(owner, .plain).put(slot("bob"), picture(1)) }
        store.maintain()
        #expect(hasReserve())
        system.plan { call, _, _ in call == .write && hasReserve() ? .fail(ENOSPC) : nil }
        let vault = try #require(try store.load(alice)).vault
        #expect(try vault.bytes(slot("bob")) == picture(1).content)
        #expect(throws: StoreError.noSpace("writing an image: pwrite: ENOSPC (No space left on device)")) {
            try vault.put(slot("eve"), picture(2))
        }
        #expect(throws: StoreError.noSpace("logging in: pwrite: ENOSPC (No space left on device)")) {
            _ = try store.commitLogin(carol, .plain)
        }
        #expect(hasReserve())
        vault.close()
        #expect(try store.commitPurge(alice).bytes(slot("bob")) == nil)
        try store.commitLogout(bob)
        #expect(try store.users(of: 1000) == [alice.user])
        #expect(!hasReserve())
        system.heal()
        store.maintain()
        #expect(hasReserve())
        #expect(tree.temporaries.isEmpty)
    }
}

@Test func `F4: with no reserve left a purge makes room with the images that it ends`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let vault = try store.commitLogin(alice, .plain)
        for number in 0..<10 { try vault.put(slot("\(number)"), picture(1)) }
        system.plan { call, _, _ in call == .write && tree.files(under: tree.cache).count > 5 ? .fail(ENOSPC) : nil }
        vault.close()
        let renewed = try store.commitPurge(alice)
        try renewed.put(slot("new"), picture(2))
        #expect(try renewed.bytes(slot("new")) == picture(2).content)
        vault.discard()
        #expect(tree.entries.count == 1)
    }
}

import CacheCore
import DiskStore
import LinuxSupport
import NIOCore
import Testing

@Test func `I5: an image is read back with its record in the requested framing`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        let plain = testImage(1, url: "https://example.org/a?s=64")
        var record = plain.record
        record.freshness = Freshness(
            storedAt: 7, initialAge: 8, lifetime: 9, staleWhileRevalidate: 10, staleIfError: 11)
        record.fields.etag = "\"abc\""
        record.fields.lastModified = "Tue, 15 Nov 1994 12:45:26 GMT"
        let image = Image(record: record, bytes: plain.bytes)
        #expect(try generationStore.put(imageKey("bob", 64), image))

        let found = try #require(try generationStore.read(imageKey("bob", 64), framing: .bulk))
        #expect(found.record == image.record)
        #expect(found.content == image.content)
        #expect(
            Array(found.bytes.framed.readableBytesView) == Array("$1000\r\n".utf8) + image.content + Array("\r\n".utf8))
        #expect(try generationStore.read(imageKey("bob", 65), framing: .bare) == nil)
        #expect(try generationStore.read(imageKey("bob"), framing: .bare) == nil)
        #expect(generationStore.usage?.images == 1)
    }
}

@Test(arguments: [0, 1, 15, 16, 17, 4096, 100_000, 5 << 20])
func `I5: an image of any length is read back`(count: Int) throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        let image = testImage(3, count: count)
        try generationStore.put(imageKey("bob"), image)
        #expect(try generationStore.bytes(imageKey("bob")) == image.content)
    }
}

@Test func `F23: ids are opaque bytes and different ids are distinct`() throws {
    let tree = try TestTree()
    let ids: [[UInt8]] =
        [
            Array("..".utf8), Array("../../etc/passwd".utf8), Array("/".utf8), [0], [0, 0], Array("a\nb".utf8),
            [0xFF, 0xFE], [0xC3, 0x28], [UInt8](repeating: 0x41, count: 511), [UInt8](repeating: 0x41, count: 512),
            Array("é".utf8), Array("e\u{301}".utf8), Array("UID".utf8), Array("*".utf8),
        ] + (30...33).flatMap { [[UInt8](repeating: 0x41, count: $0), [UInt8](repeating: 0, count: $0)] }
    func id(_ bytes: [UInt8]) -> OpaqueID { OpaqueID(ByteBuffer(bytes: bytes)) }
    try tree.withStore { store in
        for (index, user) in ids.enumerated() {
            let generationStore = try store.commitLogin(Owner(uid: 7, user: id(user)), .plain)
            try generationStore.put(ImageKey(profile: id(user)), testImage(UInt8(index)))
        }
    }
    try tree.withStore { store in
        #expect(try Set(store.users(of: 7)) == Set(ids.map(id)))
        for (index, user) in ids.enumerated() {
            let generationStore = try #require(try store.load(Owner(uid: 7, user: id(user)))).generationStore
            for (other, profile) in ids.enumerated() {
                #expect(
                    try generationStore.bytes(ImageKey(profile: id(profile)))
                        == (other == index ? testImage(UInt8(index)).content : nil))
            }
        }
    }
}

@Test func `a login survives a restart with sessions, origin, token and images`() throws {
    let tree = try TestTree()
    let record = LoginRecord(
        sessions: [OpaqueID("one"), OpaqueID("two")], origin: "work", token: Secret(Array("t0ken".utf8)),
        loggedInAt: 1_700_000_000)
    try tree.withStore { store in
        #expect(try store.load(alice) == nil)
        try store.commitLogin(alice, record).put(imageKey("bob"), testImage(1))
    }
    try tree.withStore { store in
        let login = try #require(try store.load(alice))
        #expect(login.record == record)
        #expect(try login.generationStore.bytes(imageKey("bob")) == testImage(1).content)
        #expect(try store.users(of: 1000) == [alice.user])
        #expect(try store.countUsers(of: 1000) == 1)
        #expect(try store.countUsers(of: 1001) == 0)
        var changed = record
        changed.sessions = [OpaqueID("two")]
        try store.commitSessions(alice, changed)
    }
    try tree.withStore { store in
        let login = try #require(try store.load(alice))
        #expect(login.record.sessions == [OpaqueID("two")])
    }
}

@Test func `I2, I3: after a logout no file of the user remains`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        generationStore.close()
        try store.commitLogout(alice)
        generationStore.discard()
        #expect(tree.keyFiles.isEmpty)
        #expect(tree.sessionFiles.isEmpty)
        #expect(tree.entries.isEmpty)
        #expect(store.trashUsage.images == 1)
        store.maintain()
        #expect(tree.files(under: tree.cache + "/trash").isEmpty)
        #expect(store.trashUsage == Usage())
        #expect(try store.load(alice) == nil)
        try store.commitLogout(alice)
        #expect(throws: StoreError.closed) { try generationStore.put(imageKey("bob"), testImage(1)) }
        #expect(throws: StoreError.closed) { try generationStore.bytes(imageKey("bob")) }
        #expect(throws: StoreError.closed) { try generationStore.remove([OpaqueID("bob")]) }
    }
}

@Test func `I3, F42: after a purge old images are absent and new ones survive a restart`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let old = try store.commitLogin(alice, .plain)
        try old.put(imageKey("bob"), testImage(1))
        old.close()
        let new = try store.commitPurge(alice)
        #expect(try new.bytes(imageKey("bob")) == nil)
        #expect(new.usage == Usage())
        try new.put(imageKey("eve"), testImage(2))
        old.discard()
        #expect(old.usage == nil)
        #expect(try new.bytes(imageKey("eve")) == testImage(2).content)
    }
    try tree.withStore { store in
        let login = try #require(try store.load(alice))
        #expect(login.record == .plain)
        #expect(try login.generationStore.bytes(imageKey("bob")) == nil)
        #expect(try login.generationStore.bytes(imageKey("eve")) == testImage(2).content)
        store.maintain()
        #expect(try login.generationStore.bytes(imageKey("eve")) == testImage(2).content)
        #expect(tree.entries.count == 1)
    }
}

@Test func `I3: removing profiles fences each and removes all its sizes, and no other profile`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for size in [0, 1, 64, 4096] as [UInt16] { try generationStore.put(imageKey("bob", size), testImage(1)) }
        try generationStore.put(imageKey("eve", 64), testImage(2))
        // Profiles passed to `fence` and `removed`, and the number of entries at that time.
        var calls: [OpaqueID] = []
        var entries: [Int] = []
        let record = { (profile: OpaqueID) in
            calls.append(profile)
            entries.append(tree.entries.count)
        }
        let removed = try generationStore.remove([OpaqueID("bob"), OpaqueID("nobody")], fence: record, removed: record)
        #expect(calls == ["bob", "bob", "nobody", "nobody"].map { OpaqueID($0) })
        #expect(entries == [5, 1, 1, 1])
        #expect(removed.images == 4)
        #expect(try generationStore.bytes(imageKey("bob", 64)) == nil)
        #expect(try generationStore.bytes(imageKey("eve", 64)) == testImage(2).content)
        #expect(generationStore.usage?.images == 1)
    }
}

@Test(arguments: [1, 2])
func `a write that is no longer current at its beginning or at its commit leaves no file`(lastCall: Int) throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        var calls = 0
        var committed = false
        let isCommitted = try generationStore.write(
            imageKey("bob"), testImage(2),
            isCurrent: {
                calls += 1
                return calls < lastCall
            },
            committed: { committed = true })
        #expect(!isCommitted)
        #expect(calls == lastCall)
        #expect(!committed)
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        #expect(tree.temporaries.isEmpty)
    }
}

@Test func `I8: an image over the quota is rejected`() throws {
    let tree = try TestTree()
    try tree.withStore(tree.configuration(userQuota: 1000)) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        #expect(throws: StoreError.noSpace("the image needs 1124 bytes; the limit is 1000")) {
            try generationStore.put(imageKey("bob"), testImage(1))
        }
        #expect(tree.entries.isEmpty)
    }
}

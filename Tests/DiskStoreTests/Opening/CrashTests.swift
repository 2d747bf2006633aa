import DiskStore
import Glibc
import Testing
import ThumbnailCache

/// One operation and what may be found after a death in the middle of it.
private struct Scene: CustomTestStringConvertible, Sendable {
    let testDescription: String
    /// Brings the store to where the operation begins.
    let before: @Sendable (DiskStore) throws -> Void
    /// The operation that is killed. It throws when it has died.
    let operation: @Sendable (DiskStore) throws -> Void
    /// What the disk says to the next start; `isDone` when the operation had returned: then a receipt was given.
    let check: @Sendable (DiskStore, _ isDone: Bool) throws -> Void
}

private let images = [slot("bob"), slot("bob", 64), slot("eve")]

private func logInAlice(_ store: DiskStore) throws {
    let vault = try store.commitLogin(alice, .plain)
    for (index, slot) in images.enumerated() { try vault.put(slot, picture(UInt8(index))) }
    try store.commitLogin(carol, .plain).put(slot("bob"), picture(77))
}

private func closedVault(_ store: DiskStore) throws -> any ImageVault {
    let vault = try #require(try store.load(alice)).vault
    vault.close()
    return vault
}

private let scenes: [Scene] = [
    Scene(
        testDescription: "LOGIN", before: { _ in },
        operation: { _ = try $0.commitLogin(alice, .plain) },
        check: { store, isDone in
            let login = try store.load(alice)
            #expect(login == nil || login?.record == .plain)
            if isDone { #expect(login != nil) }
        }),
    Scene(
        testDescription: "a change of sessions", before: logInAlice,
        operation: { store in
            var record = LoginRecord.plain
            record.sessions = [OpaqueID("other")]
            try store.commitSessions(alice, record)
        },
        check: { store, isDone in
            let login = try #require(try store.load(alice))
            let old = login.record.sessions == [OpaqueID("default")]
            #expect(old || login.record.sessions == [OpaqueID("other")])
            if isDone { #expect(!old) }
            #expect(try login.vault.bytes(slot("bob")) == picture(0).content)
        }),
    Scene(
        testDescription: "PURGE", before: logInAlice,
        operation: { store in
            let old = try closedVault(store)
            try store.commitPurge(alice).put(slot("bob"), picture(99))
            old.discard()
        },
        check: { store, isDone in
            let login = try #require(try store.load(alice))
            let found = try images.map { try login.vault.bytes($0) }
            let isOld = found[2] != nil
            if isOld {
                #expect(found == images.indices.map { picture(UInt8($0)).content })
            } else {
                #expect(found[0] == nil || found[0] == picture(99).content)
                #expect(found[1] == nil)
            }
            if isDone { #expect(found[0] == picture(99).content) }
        }),
    Scene(
        testDescription: "LOGOUT", before: logInAlice,
        operation: { store in
            let old = try closedVault(store)
            try store.commitLogout(alice)
            old.discard()
        },
        check: { store, isDone in
            let login = try store.load(alice)
            if isDone { #expect(login == nil) }
            if let login {
                #expect(login.record == .plain)
                #expect(
                    try images.map { try login.vault.bytes($0) } == images.indices.map { picture(UInt8($0)).content })
            }
        }),
    Scene(
        testDescription: "PURGE of profiles", before: logInAlice,
        operation: { store in
            let login = try #require(try store.load(alice))
            _ = try login.vault.remove([OpaqueID("bob")])
        },
        check: { store, isDone in
            let login = try #require(try store.load(alice))
            let found = try images.map { try login.vault.bytes($0) }
            for (index, bytes) in found.enumerated() {
                #expect(bytes == nil || bytes == picture(UInt8(index)).content)
            }
            #expect(found[2] != nil)
            if isDone { #expect(found[0] == nil && found[1] == nil) }
        }),
    Scene(
        testDescription: "PUT", before: logInAlice,
        operation: { store in
            let login = try #require(try store.load(alice))
            try login.vault.put(slot("bob"), picture(50))
            try login.vault.put(slot("new"), picture(51))
        },
        check: { store, isDone in
            let login = try #require(try store.load(alice))
            let replaced = try login.vault.bytes(slot("bob"))
            let added = try login.vault.bytes(slot("new"))
            #expect(replaced == picture(0).content || replaced == picture(50).content)
            #expect(added == nil || added == picture(51).content)
            if isDone { #expect(replaced == picture(50).content && added == picture(51).content) }
        }),
]

extension CrashTests {
    /// Runs a scene over and over, each time dying one call later, until it gets through.
    /// - Returns: at how many calls it died.
    private func dieAtEveryCall(of scene: Scene, _ fault: FaultySystem.Fault) throws -> Int {
        var number = 1
        while true {
            let tree = try TestTree()
            let system = FaultySystem()
            try tree.withStore { try scene.before($0) }
            var isDone = true
            try tree.withStore(system: system) { store in
                let last = number
                system.plan { _, call, _ in call == last ? fault : nil }
                do { try scene.operation(store) } catch { isDone = false }
            }
            let hasDied = system.isDead
            try tree.withStore { store in
                try scene.check(store, isDone)
                store.maintain()
                try scene.check(store, isDone)
                if scene.testDescription != "LOGIN" {
                    // Nobody else's is touched.
                    let other = try #require(try store.load(carol))
                    #expect(try other.vault.bytes(slot("bob")) == picture(77).content)
                }
                #expect(tree.temporaries.isEmpty, "died at call \(number)")
                #expect(tree.files(under: tree.cache + "/trash").isEmpty)
                #expect(tree.sessionFiles.count == tree.keyFiles.count)
            }
            if !hasDied { return number }
            number += 1
        }
    }
}

@Suite struct CrashTests {
    @Test(arguments: scenes)
    fileprivate func `F1, F43: a death before any system call leaves all or nothing, and breaks no receipt`(
        scene: Scene
    ) throws {
        #expect(try dieAtEveryCall(of: scene, .die) > 5)
    }

    @Test(arguments: scenes)
    fileprivate func `F1, F43: a death after any system call leaves all or nothing, and breaks no receipt`(
        scene: Scene
    ) throws {
        #expect(try dieAtEveryCall(of: scene, .dieAfter) > 5)
    }

    @Test func `F1: a death at any system call of a start harms nothing`() throws {
        for isFirst in [true, false] {
            var number = 1
            while true {
                let tree = try TestTree()
                if !isFirst {
                    // With a dead generation to sweep, and a log-in that did not outlive its connection.
                    try tree.withStore { store in
                        try logInAlice(store)
                        try store.commitLogin(bob, LoginRecord(sessions: [], loggedInAt: 1)).put(
                            slot("bob"), picture(3))
                    }
                }
                let system = FaultySystem()
                let last = number
                system.plan { _, call, _ in call == last ? .dieAfter : nil }
                do {
                    try tree.withStore(system: system) { $0.maintain() }
                } catch {
                    #expect(system.isDead)
                }
                try tree.withStore { store in
                    if !isFirst {
                        let vault = try #require(try store.load(alice)).vault
                        #expect(try vault.bytes(slot("bob")) == picture(0).content)
                    }
                    store.maintain()
                    #expect(tree.temporaries.isEmpty)
                    #expect(tree.entries.count == (isFirst ? 0 : 4))
                    #expect(tree.keyFiles.count == (isFirst ? 0 : 2))
                    #expect(store.epochBase >> 32 >= (isFirst ? 1 : 2))
                }
                if !system.isDead { break }
                number += 1
            }
            #expect(number > 20)
        }
    }
}

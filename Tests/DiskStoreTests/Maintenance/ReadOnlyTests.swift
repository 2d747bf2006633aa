import CacheCore
import DiskStore
import Foundation
import Glibc
import Logging
import NIOConcurrencyHelpers
import Testing

/// File systems that have become read-only (F74, F76) or full (F77).
@Suite struct ReadOnlyTests {
    @Test func `F74: a login that could be neither made durable nor undone does not exist until it is repeated`() throws
    {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(bob, .plain)
            let renames = NIOLockedValueBox(0)
            system.plan { call, _, _ in
                if call == .rename { renames.withLockedValue { $0 += 1 } }
                // Fails after both the session file and the key file have been renamed.
                guard call == .sync, renames.withLockedValue({ $0 }) == 2 else { return nil }
                system.setReadOnly()
                return .fail(EIO)
            }
            #expect(throws: StoreError.self) { _ = try store.commitLogin(alice, .plain) }
            #expect(tree.keyFiles.count == 2)
            // Nothing is reported about it, and other users are not affected.
            #expect(throws: StoreError.self) { _ = try store.load(alice) }
            #expect(throws: StoreError.self) { _ = try store.commitLogin(alice, .plain) }
            #expect(try store.load(bob)?.record == .plain)
            system.heal()
            #expect(try store.load(alice) == nil)
            _ = try store.commitLogin(alice, .plain)
            #expect(try store.load(alice)?.record == .plain)
        }
        try tree.withStore { store in
            let users = try store.users(of: 1000)
            #expect(users.count == 2)
        }
    }

    @Test func `F76: a user not loaded before is served from a disk that has become read-only`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            for owner in [alice, carol] { try store.commitLogin(owner, .plain).put(imageKey("bob"), testImage(1)) }
        }
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            system.setReadOnly()
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
            #expect(try store.users(of: 1001) == [carol.user])
            // Durability fails with an error.
            #expect(throws: StoreError.self) { try store.commitLogout(carol) }
            #expect(throws: StoreError.self) { _ = try generationStore.remove([OpaqueID("bob")]) }
        }
    }

    @Test func `F76: a start on a read-only disk serves images`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: "one", endsLogins: true)
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        }
        let system = FaultySystem()
        system.setReadOnly()
        try tree.withStore(system: system) { store in
            try store.endLoginsOfEarlierBoot(than: "one", endsLogins: true)
            store.maintain()
            #expect(try store.users(of: 1000) == [alice.user])
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
            #expect(throws: StoreError.self) { _ = try store.commitLogin(bob, .plain) }
            // One daemon per store, here too.
            #expect(throws: StoreStartError.self) {
                _ = try DiskStore(
                    configuration: tree.configuration(), system: system, yield: {},
                    log: Logger(label: "test") { _ in SilentLog() })
            }
        }
    }

    @Test func `F76: after a boot a read-only disk stops the start only if the boot ends logins`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            _ = try store.commitLogin(alice, .plain)
            try store.endLoginsOfEarlierBoot(than: "one", endsLogins: false)
        }
        let system = FaultySystem()
        system.setReadOnly()
        try tree.withStore(system: system) { store in
            try store.endLoginsOfEarlierBoot(than: "two", endsLogins: false)
            #expect(throws: StoreError.self) { try store.endLoginsOfEarlierBoot(than: "two", endsLogins: true) }
        }
    }

    @Test func `F77: a start succeeds on a disk that rejects writes in place`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
            store.maintain()
        }
        let system = FaultySystem()
        system.plan { call, _, _ in call == .write ? .fail(ENOSPC) : nil }
        try tree.withStore(system: system) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        }
    }
}

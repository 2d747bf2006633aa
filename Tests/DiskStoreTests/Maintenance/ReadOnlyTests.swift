import CacheCore
import DiskStore
import Foundation
import Glibc
import Logging
import NIOConcurrencyHelpers
import Testing

/// A file system on which nothing can be changed any more (F74, F76), or nothing without room (F77).
@Suite struct ReadOnlyTests {
    @Test func `F74: a log-in that could not be made durable, nor undone, is no log-in until it is made anew`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(bob, .plain)
            let renames = NIOLockedValueBox(0)
            system.plan { call, _, _ in
                if call == .rename { renames.withLockedValue { $0 += 1 } }
                // The session file's, then the key file's: the log-in stands there, and the disk fails.
                guard call == .sync, renames.withLockedValue({ $0 }) == 2 else { return nil }
                system.setReadOnly()
                return .fail(EIO)
            }
            #expect(throws: StoreError.self) { _ = try store.commitLogin(alice, .plain) }
            #expect(tree.keyFiles.count == 2)
            // Nothing is said of it, and others are not kept from anything.
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

    @Test func `F76: on a disk that has become read-only a user who was not yet named is served`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            for owner in [alice, carol] { try store.commitLogin(owner, .plain).put(imageKey("bob"), picture(1)) }
        }
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            system.setReadOnly()
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == picture(1).content)
            #expect(try store.users(of: 1001) == [carol.user])
            // What has to be durable is not, and says so.
            #expect(throws: StoreError.self) { try store.commitLogout(carol) }
            #expect(throws: StoreError.self) { _ = try generationStore.remove([OpaqueID("bob")]) }
        }
    }

    @Test func `F76: a start on a read-only disk serves what there is`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.recordBoot("one", endsLogins: true)
            try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
        }
        let system = FaultySystem()
        system.setReadOnly()
        try tree.withStore(system: system) { store in
            try store.recordBoot("one", endsLogins: true)
            store.maintain()
            #expect(try store.users(of: 1000) == [alice.user])
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == picture(1).content)
            #expect(throws: StoreError.self) { _ = try store.commitLogin(bob, .plain) }
            // One daemon per store, here too.
            #expect(throws: StoreStartError.self) {
                _ = try DiskStore(
                    configuration: tree.configuration(), system: system, yield: {},
                    log: Logger(label: "test") { _ in SilentLog() })
            }
        }
    }

    @Test func `F76: after a boot a read-only disk stops the start only where the boot is to end log-ins`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            _ = try store.commitLogin(alice, .plain)
            try store.recordBoot("one", endsLogins: false)
        }
        let system = FaultySystem()
        system.setReadOnly()
        try tree.withStore(system: system) { store in
            try store.recordBoot("two", endsLogins: false)
            #expect(throws: StoreError.self) { try store.recordBoot("two", endsLogins: true) }
        }
    }

    @Test func `F77: a start on a disk that has no room, not even to write in place, is a start`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
            store.maintain()
        }
        let system = FaultySystem()
        system.plan { call, _, _ in call == .write ? .fail(ENOSPC) : nil }
        try tree.withStore(system: system) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == picture(1).content)
        }
    }
}

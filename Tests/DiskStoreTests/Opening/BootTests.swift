import CacheCore
import DiskStore
import Foundation
import Glibc
import Testing

/// Logout of all users after a boot.
@Suite struct BootTests {
    private static let boots = (1...3).map { "0000000\($0)-5f82-4e11-aebf-3676ccdeafe4" }

    private func fill(_ store: DiskStore) throws {
        for owner in [alice, bob, carol] { try store.commitLogin(owner, .plain).put(imageKey("bob"), testImage(1)) }
    }

    private func loggedIn(_ store: DiskStore) throws -> Int {
        try store.users(of: 1000).count + store.users(of: 1001).count
    }

    @Test func `purge-on-boot: a start after a boot ends all logins; another start ends none`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            try fill(store)
        }
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            #expect(try loggedIn(store) == 3)
            #expect(try store.load(alice)?.generationStore.bytes(imageKey("bob")) == testImage(1).content)
        }
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true)
            #expect(try loggedIn(store) == 0)
            #expect(tree.keyFiles.isEmpty && tree.sessionFiles.isEmpty)
            store.maintain()
            #expect(tree.entries.isEmpty)
            // Later logins stay.
            try fill(store)
        }
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true)
            #expect(try loggedIn(store) == 3)
        }
    }

    @Test func `without purge-on-boot logins survive a boot, also one before it is enabled`() throws {
        let tree = try TestTree()
        for boot in Self.boots {
            try tree.withStore { store in
                try store.endLoginsOfEarlierBoot(than: boot, endsLogins: false)
                if boot == Self.boots[0] { try fill(store) }
                #expect(try loggedIn(store) == 3)
            }
        }
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[2], endsLogins: true)
            #expect(try loggedIn(store) == 3)
        }
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            #expect(try loggedIn(store) == 0)
        }
    }

    @Test(arguments: ["missing", "empty", "damaged", "a directory"])
    func `I4: with purge-on-boot an unreadable record counts as a boot`(record: String) throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            try fill(store)
        }
        let path = tree.state + "/boot"
        switch record {
        case "missing": try FileManager.default.removeItem(atPath: path)
        case "empty": try Data().write(to: URL(fileURLWithPath: path))
        default: try Data("\(Self.boots[0])x".utf8).write(to: URL(fileURLWithPath: path))
        }
        if record == "a directory" {
            try FileManager.default.removeItem(atPath: path)
            try #require(mkdir(path, 0o700) == 0)
        }
        try tree.withStore { store in
            if record == "a directory" {
                // The logins have ended; failing to record the boot is an error, so clients are not served.
                #expect(throws: StoreError.self) {
                    try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
                }
            } else {
                try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            }
            #expect(try loggedIn(store) == 0)
        }
    }

    @Test func `a damaged login does not survive a boot`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            try fill(store)
        }
        try Data([1, 2, 3]).write(to: URL(fileURLWithPath: try #require(tree.keyFiles.first)))
        try tree.withStore { try $0.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true) }
        #expect(tree.keyFiles.isEmpty)
    }

    @Test(arguments: [FaultySystem.Fault.die, .dieAfter])
    func `F1, F43: after a kill at any call, the next start ends the remaining logins`(
        fault: FaultySystem.Fault
    ) throws {
        var number = 1
        var isDone = false
        while !isDone {
            let tree = try TestTree()
            try tree.withStore { store in
                try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
                try fill(store)
            }
            let system = FaultySystem()
            let last = number
            try tree.withStore(system: system) { store in
                system.plan { _, call, _ in call == last ? fault : nil }
                do {
                    try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true)
                    isDone = !system.isDead
                } catch {
                    #expect(system.isDead)
                }
            }
            try tree.withStore { store in
                try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true)
                #expect(try loggedIn(store) == 0, "died at call \(number)")
                #expect(tree.keyFiles.isEmpty)
            }
            number += 1
        }
        #expect(number > 30)
    }

    @Test(arguments: [SystemCall.unlink, .sync, .write])
    func `I4, F7, F8: if a logout cannot be made durable, the boot is not recorded and the next start retries`(
        call: SystemCall
    ) throws {
        let tree = try TestTree()
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: true)
            try fill(store)
        }
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            system.plan { made, _, _ in made == call ? .fail(EIO) : nil }
            #expect(throws: StoreError.self) { try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true) }
            system.heal()
        }
        try tree.withStore { store in
            try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: true)
            #expect(try loggedIn(store) == 0)
        }
    }

    @Test func `F52: with keys in the runtime directory no login survives a boot`() throws {
        for endsLogins in [true, false] {
            let tree = try TestTree()
            let configuration = tree.configuration(keys: .runtime)
            try tree.withStore(configuration) { store in
                try store.endLoginsOfEarlierBoot(than: Self.boots[0], endsLogins: endsLogins)
                try fill(store)
            }
            // Clears the directory as a boot clears a tmpfs.
            try FileManager.default.removeItem(atPath: tree.runtime)
            try tree.withStore(configuration) { store in
                try store.endLoginsOfEarlierBoot(than: Self.boots[1], endsLogins: endsLogins)
                #expect(try loggedIn(store) == 0)
                #expect(try store.load(alice) == nil)
                store.maintain()
                #expect(tree.entries.isEmpty && tree.sessionFiles.isEmpty)
            }
        }
    }
}

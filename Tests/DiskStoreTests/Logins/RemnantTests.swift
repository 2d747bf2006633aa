import CacheCore
import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

/// Keeps a hard link to every key file of a uid, to check its bytes after the store has unlinked it.
private final class KeyWitness: Sendable {
    private let keys: String
    private let directory: String

    init(_ tree: TestTree) throws {
        keys = tree.state + "/keys/1000"
        directory = tree.root + "/witness"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    }

    /// Call this repeatedly while the store works.
    func linkNewFiles() {
        for name in (try? FileManager.default.contentsOfDirectory(atPath: keys)) ?? [] {
            var status = stat()
            guard lstat("\(keys)/\(name)", &status) == 0 else { continue }
            _ = link("\(keys)/\(name)", "\(directory)/\(status.st_ino)")
        }
    }

    /// Whether only current key files contain data, and none of them is temporary.
    func onlyCurrentKeysRemain() throws -> Bool {
        for name in try FileManager.default.contentsOfDirectory(atPath: directory) {
            var status = stat()
            guard lstat("\(directory)/\(name)", &status) == 0, status.st_nlink == 1 else { continue }
            let bytes = try Data(contentsOf: URL(fileURLWithPath: "\(directory)/\(name)"))
            if bytes.contains(where: { $0 != 0 }) { return false }
        }
        return true
    }
}

@Suite struct RemnantTests {
    @Test func `F70: the key file that a purge replaces is overwritten, and not before the new one is durable`() throws
    {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
            let old = URL(fileURLWithPath: tree.root + "/old")
            try FileManager.default.linkItem(atPath: try #require(tree.keyFiles.first), toPath: old.path)
            let before = try Data(contentsOf: old)
            let seen = NIOLockedValueBox<[(call: SystemCall, isIntact: Bool)]>([])
            system.plan { call, _, _ in
                seen.withLockedValue { $0.append((call, (try? Data(contentsOf: old)) == before)) }
                return nil
            }
            _ = try store.commitPurge(alice)
            #expect(try Data(contentsOf: old) == Data(count: before.count))
            let calls = seen.withLockedValue { $0 }
            let placed = try #require(calls.firstIndex { $0.call == .exchange || $0.call == .rename })
            let durable = try #require(calls[placed...].firstIndex { $0.call == .sync })
            let overwritten = try #require(calls.firstIndex { !$0.isIntact })
            #expect(durable < overwritten)
            // The zeros are durable, too.
            #expect(calls[overwritten...].contains { $0.call == .sync })
        }
    }

    @Test(arguments: [FaultySystem.Fault.die, .dieAfter], [true, false])
    func `F70: after a purge killed at any call, the next sweep overwrites the old keys`(
        fault: FaultySystem.Fault, canSwap: Bool
    ) throws {
        var number = 1
        while true {
            let tree = try TestTree()
            let system = FaultySystem()
            let witness = try KeyWitness(tree)
            let last = number
            try tree.withStore(system: system) { store in
                _ = try store.commitLogin(alice, .plain)
                system.plan { kind, call, _ in
                    witness.linkNewFiles()
                    if call == last { return fault }
                    return kind == .exchange && !canSwap ? .fail(EINVAL) : nil
                }
                do { _ = try store.commitPurge(alice) } catch { #expect(system.isDead) }
            }
            try tree.withStore { store in
                let login = try store.load(alice)
                #expect(login?.record == .plain, "died at call \(last)")
                store.maintain()
                #expect(tree.keyFiles.count == 1)
                #expect(try witness.onlyCurrentKeysRemain(), "died at call \(last)")
            }
            if !system.isDead { break }
            number += 1
        }
        #expect(number > 5)
    }

    @Test(arguments: [EIO, EINVAL, EROFS])
    func `F70: a failing call of a login, purge or logout leaves no key in an unlinked file`(
        code: Int32
    ) throws {
        var number = 1
        while true {
            let tree = try TestTree()
            let system = FaultySystem()
            let witness = try KeyWitness(tree)
            let last = number
            var isReached = true
            try tree.withStore(system: system) { store in
                system.plan { _, call, _ in
                    witness.linkNewFiles()
                    return call == last ? .fail(code) : nil
                }
                let steps: [() throws -> Void] = [
                    { _ = try store.commitLogin(alice, .plain) }, { _ = try store.commitPurge(alice) },
                    { try store.commitLogout(alice) },
                ]
                // A client without a receipt retries.
                for step in steps { do { try step() } catch { try step() } }
                isReached = system.calls >= last
                #expect(tree.keyFiles.isEmpty)
                #expect(try witness.onlyCurrentKeysRemain(), "call \(last) failed")
            }
            if !isReached { break }
            number += 1
        }
        #expect(number > 20)
    }

    @Test func `I4: a logout whose key file cannot be overwritten has no receipt; a retry has one`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            let calls = NIOLockedValueBox<[SystemCall]>([])
            system.plan { call, _, _ in
                calls.withLockedValue { $0.append(call) }
                return call == .write ? .fail(EIO) : nil
            }
            #expect(throws: StoreError.self) { try store.commitLogout(alice) }
            // The file is removed durably.
            #expect(tree.keyFiles.isEmpty)
            let seen = calls.withLockedValue { $0 }
            let unlinked = try #require(seen.lastIndex(of: .unlink))
            #expect(seen[unlinked...].contains(.sync))
            // The sector is still bad.
            try store.commitLogout(alice)
            #expect(try store.load(alice) == nil)
        }
    }

    @Test func `I4: an unlinked key file is made durable even if a later step fails`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            // The key file cannot be overwritten and is unlinked; then the next lookup fails.
            let calls = NIOLockedValueBox<[SystemCall]>([])
            system.plan { call, _, _ in
                let seen = calls.withLockedValue { calls in
                    calls.append(call)
                    return calls
                }
                return call == .write || call == .statusOfName && seen.contains(.unlink) ? .fail(EIO) : nil
            }
            #expect(throws: StoreError.self) { try store.commitLogout(alice) }
            let seen = calls.withLockedValue { $0 }
            let unlinked = try #require(seen.lastIndex(of: .unlink))
            #expect(seen[unlinked...].contains(.statusOfName))
            // The retry has nothing left to do.
            #expect(seen[unlinked...].contains(.sync))
            system.heal()
            try store.commitLogout(alice)
            #expect(try store.load(alice) == nil)
        }
    }

    @Test func `I4: a purge whose old key file cannot be overwritten has no receipt; a retry has one`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            generationStore.close()
            // The first write creates the new key file.
            system.plan { call, _, ofKind in call == .write && ofKind > 1 ? .fail(EIO) : nil }
            #expect(throws: StoreError.self) { _ = try store.commitPurge(alice) }
            #expect(tree.keyFiles.count == 1)
            system.heal()
            let renewed = try store.commitPurge(alice)
            #expect(tree.keyFiles.count == 1)
            #expect(try renewed.bytes(imageKey("bob")) == nil)
        }
    }
}

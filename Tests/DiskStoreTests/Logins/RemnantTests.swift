import CacheCore
import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

/// Keeps a second name for every key file that ever stands among the keys of a uid, so that what becomes of its bytes
/// can be seen after the store has let go of it.
private final class KeyWitness: Sendable {
    private let keys: String
    private let place: String

    init(_ tree: TestTree) throws {
        keys = tree.state + "/keys/1000"
        place = tree.root + "/witness"
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
    }

    /// Called again and again, while the store works.
    func look() {
        for name in (try? FileManager.default.contentsOfDirectory(atPath: keys)) ?? [] {
            var status = stat()
            guard lstat("\(keys)/\(name)", &status) == 0 else { continue }
            _ = link("\(keys)/\(name)", "\(place)/\(status.st_ino)")
        }
    }

    /// Whether the only key files that hold anything yet are those among the keys, and none of those is a temporary
    /// one.
    func onlyLivingKeysAreLeft() throws -> Bool {
        for name in try FileManager.default.contentsOfDirectory(atPath: place) {
            var status = stat()
            guard lstat("\(place)/\(name)", &status) == 0, status.st_nlink == 1 else { continue }
            let bytes = try Data(contentsOf: URL(fileURLWithPath: "\(place)/\(name)"))
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
            try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
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
            // And the zeros are durable themselves.
            #expect(calls[overwritten...].contains { $0.call == .sync })
        }
    }

    @Test(arguments: [FaultySystem.Fault.die, .dieAfter], [true, false])
    func `F70: a purge that dies at any call has overwritten the old keys when the next start has swept`(
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
                    witness.look()
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
                #expect(try witness.onlyLivingKeysAreLeft(), "died at call \(last)")
            }
            if !system.isDead { break }
            number += 1
        }
        #expect(number > 5)
    }

    @Test(arguments: [EIO, EINVAL, EROFS])
    func `F70: whatever call of a log-in, purge and log-out fails, no key is left in a file that is gone`(
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
                    witness.look()
                    return call == last ? .fail(code) : nil
                }
                let steps: [() throws -> Void] = [
                    { _ = try store.commitLogin(alice, .plain) }, { _ = try store.commitPurge(alice) },
                    { try store.commitLogout(alice) },
                ]
                // As whoever got no receipt tries again.
                for step in steps { do { try step() } catch { try step() } }
                isReached = system.calls >= last
                #expect(tree.keyFiles.isEmpty)
                #expect(try witness.onlyLivingKeysAreLeft(), "call \(last) failed")
            }
            if !isReached { break }
            number += 1
        }
        #expect(number > 20)
    }

    @Test func `I4: a log-out whose key file cannot be overwritten has no receipt, the next attempt has one`() throws {
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
            // It is gone, and durably so.
            #expect(tree.keyFiles.isEmpty)
            let seen = calls.withLockedValue { $0 }
            let unlinked = try #require(seen.lastIndex(of: .unlink))
            #expect(seen[unlinked...].contains(.sync))
            // The sector is as bad as before.
            try store.commitLogout(alice)
            #expect(try store.load(alice) == nil)
        }
    }

    @Test func `I4: what a log-out has unlinked is made durable, whatever fails behind it`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            // The key cannot be overwritten and is unlinked; what is looked at next cannot be seen.
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
            // Whoever tries again finds nothing to do.
            #expect(seen[unlinked...].contains(.sync))
            system.heal()
            try store.commitLogout(alice)
            #expect(try store.load(alice) == nil)
        }
    }

    @Test func `I4: a purge whose old key file cannot be overwritten has no receipt, the next one has`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            generationStore.close()
            // The first one writes the new key file.
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

import DiskStore
import Glibc
import Testing
import ThumbnailCache

/// A log-out takes the directory of a uid away, with the last user of it, while somebody lists what is in it (F73).
@Suite struct VanishingDirectoryTests {
    /// Before which of its calls; the first ones find the directory, open it and list it.
    private static let moments = 1...4

    @Test(arguments: moments)
    func `F73: users are listed and counted, whenever the last of them logs out meanwhile`(moment: Int) throws {
        let asked: [(DiskStore) throws -> Int] = [
            { try $0.countUsers(of: 1000) },
            { try $0.uidsLoggedIn().count },
        ]
        for ask in asked {
            let tree = try TestTree()
            let system = FaultySystem()
            try tree.withStore(system: system) { store in
                _ = try store.commitLogin(alice, .plain)
                let once = Once()
                system.plan { _, number, _ in
                    if number == moment, once.take() { expectSuccess { try store.commitLogout(alice) } }
                    return nil
                }
                #expect(try [0, 1].contains(ask(store)))
            }
        }
    }

    @Test func `F73: users are named while the last of them logs out, between the look and the listing`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            let once = Once()
            system.plan { call, _, _ in
                if call == .list, once.take() { expectSuccess { try store.commitLogout(alice) } }
                return nil
            }
            #expect(try store.users(of: 1000) == [])
            #expect(!once.take())
        }
    }

    @Test func `F73: images are counted and swept while the directories of them go`() throws {
        let tree = try TestTree()
        try tree.withStore { try $0.commitLogin(alice, .plain).put(slot("bob"), picture(1)) }
        for moment in 1...60 {
            let system = FaultySystem()
            try tree.withStore(system: system) { store in
                let once = Once()
                system.plan { call, _, ofKind in
                    // Whatever is listed is gone by then, as by a hand that empties the cache.
                    if call == .list, ofKind == moment, once.take() {
                        for path in tree.entries { unlink(path) }
                    }
                    return nil
                }
                store.maintain()
                system.heal()
                store.maintain()
                #expect(store.statistics.isCounted)
                try #require(try store.load(alice)).vault.put(slot("bob"), picture(1))
            }
        }
    }
}

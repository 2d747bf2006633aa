import CacheCore
import DiskStore
import Foundation
import Testing

/// A log-out takes the directory of a uid away, with the last user of it, while somebody lists what is in it; and
/// somebody empties the cache by hand (F73).
@Suite struct VanishingDirectoryTests {
    /// Before which of its calls; the first ones find the directory, open it and list it.
    private static let moments = 1...4

    @Test(arguments: moments)
    func `F73: users are counted, whenever the last of them logs out meanwhile`(moment: Int) throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            let once = Once()
            system.plan { _, number, _ in
                if number == moment, once.take() { expectSuccess { try store.commitLogout(alice) } }
                return nil
            }
            #expect(try [0, 1].contains(store.countUsers(of: 1000)))
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

    /// What goes by hand, below the directory of images.
    enum Depth: CaseIterable {
        case images, buckets, generations, uids

        func isRemoved(_ path: String) -> Bool {
            let depth = path.split(separator: "/").count
            switch self {
            case .images: return depth == 4
            case .buckets: return depth == 3
            case .generations: return depth == 2
            case .uids: return depth == 1
            }
        }
    }

    /// Empties a cache, as somebody may.
    private static func remove(_ depth: Depth, of tree: TestTree) throws {
        let root = tree.cache + "/users"
        let all = FileManager.default.enumerator(atPath: root)?.allObjects as? [String] ?? []
        for path in all where depth.isRemoved(path) { try FileManager.default.removeItem(atPath: "\(root)/\(path)") }
    }

    /// Whether they go right before a listing, from a directory that is open, or right before it is opened.
    @Test(arguments: Depth.allCases, [SystemCall.list, .open, .statusOfName])
    func `F73: images are counted and swept while the directories of them go`(depth: Depth, before: SystemCall) throws {
        var moment = 0
        var isReached = true
        while isReached {
            moment += 1
            let tree = try TestTree()
            try tree.withStore { try $0.commitLogin(alice, .plain).put(imageKey("bob"), picture(1)) }
            let system = FaultySystem()
            try tree.withStore(system: system) { store in
                let once = Once()
                let now = moment
                system.plan { call, _, ofKind in
                    if call == before, ofKind == now, once.take() { expectSuccess { try Self.remove(depth, of: tree) } }
                    return nil
                }
                store.maintain()
                isReached = !once.take()
                system.heal()
                store.maintain()
                #expect(store.isCounted)
                let generationStore = try #require(try store.load(alice)).generationStore
                try generationStore.put(imageKey("bob"), picture(2))
                #expect(try generationStore.bytes(imageKey("bob")) == picture(2).content)
            }
        }
        #expect(moment > 2)
    }
}

import CacheCore
import DiskStore
import Foundation
import Testing

/// Directories removed while they are listed: by the logout of a uid's last user, or by hand (F73).
@Suite struct VanishingDirectoryTests {
    /// The numbers of the calls before which the directory is removed: those that find, open and list it.
    private static let moments = 1...4

    @Test(arguments: moments)
    func `F73: counting users succeeds during the last logout`(moment: Int) throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            let once = Once()
            system.plan { _, number, _ in
                if number == moment, once.isFirst() { expectSuccess { try store.commitLogout(alice) } }
                return nil
            }
            #expect(try [0, 1].contains(store.countUsers(of: 1000)))
        }
    }

    @Test func `F73: listing users succeeds during the last logout`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            _ = try store.commitLogin(alice, .plain)
            let once = Once()
            system.plan { call, _, _ in
                if call == .list, once.isFirst() { expectSuccess { try store.commitLogout(alice) } }
                return nil
            }
            #expect(try store.users(of: 1000) == [])
            #expect(!once.isFirst())
        }
    }

    /// The part of the images' directory that is removed by hand.
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

    /// Removes a part of the cache by hand.
    private static func remove(_ depth: Depth, of tree: TestTree) throws {
        let root = tree.cache + "/users"
        let all = FileManager.default.enumerator(atPath: root)?.allObjects as? [String] ?? []
        for path in all where depth.isRemoved(path) { try FileManager.default.removeItem(atPath: "\(root)/\(path)") }
    }

    /// The call before which directories are removed: listing an open directory, or opening it.
    @Test(arguments: Depth.allCases, [SystemCall.list, .open, .statusOfName])
    func `F73: counting and sweeping succeed while directories are removed`(depth: Depth, before: SystemCall) throws {
        var moment = 0
        var isReached = true
        while isReached {
            moment += 1
            let tree = try TestTree()
            try tree.withStore { try $0.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
            let system = FaultySystem()
            try tree.withStore(system: system) { store in
                let once = Once()
                let now = moment
                system.plan { call, _, ofKind in
                    if call == before, ofKind == now, once.isFirst() {
                        expectSuccess { try Self.remove(depth, of: tree) }
                    }
                    return nil
                }
                store.maintain()
                isReached = !once.isFirst()
                system.heal()
                store.maintain()
                #expect(store.isCounted)
                let generationStore = try #require(try store.load(alice)).generationStore
                try generationStore.put(imageKey("bob"), testImage(2))
                #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
            }
        }
        #expect(moment > 2)
    }
}

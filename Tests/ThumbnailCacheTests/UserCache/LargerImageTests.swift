import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import ThumbnailCache

/// A larger image in place of a size that nobody has, as a user's cache looks for it. Memory keeps nothing, and all
/// work runs at once.
@Suite struct LargerImageTests {
    private static let missing = Slot(profile: OpaqueID("bob"), size: 64)
    private static let held = Slot(profile: OpaqueID("bob"), size: 128)
    private static let query = ImageQuery(slot: missing, largerWillDo: true)

    private let world = FakeWorld(memory: 0)

    private func cache() throws -> (UserCache, WatchedVault) {
        let vault = WatchedVault(try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0)))
        let cache = UserCache(
            owner: .alice, epoch: 1, vault: vault, account: .init(origin: nil), services: world.services)
        return (cache, vault)
    }

    @Test(arguments: [FakeStore.Step.sizes, .read])
    func `I9: an image that a failing disk did not show is found when the disk is well again`(step: FakeStore.Step)
        async throws
    {
        let (cache, _) = try cache()
        try cache.put(Self.held, SampleImage.png("held"), timeToLive: nil)
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        // The first read is that of the size itself.
        world.store.fail(step, times: step == .read ? 2 : 1)
        #expect(await cache.outcome(Self.query) == "null")
        #expect(world.store.calls(.sizes) == 1)
        #expect(await cache.outcome(Self.query) == "held from disk")
        // Nobody was asked again.
        #expect(world.fetcher.downloads.count == 1)
    }

    @Test func `that there is none is remembered when all was looked at`() async throws {
        let (cache, _) = try cache()
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        for _ in 0..<3 { #expect(await cache.outcome(Self.query) == "null") }
        #expect(world.store.calls(.sizes) == 1)
    }

    @Test func `I7: whoever asks behind a PUT is not given what a look from before it has found`() throws {
        world.settings.origins = [:]
        let (cache, vault) = try cache()
        try cache.put(Self.held, SampleImage.png("old"), timeToLive: nil)
        let (first, second) = (Answers(), Answers())
        vault.afterRead { slot in
            guard slot == Self.held else { return false }
            do {
                try cache.put(Self.held, SampleImage.png("new"), timeToLive: nil)
            } catch {
                Issue.record(error)
            }
            cache.get(Self.query, resolve: second.take)
            return true
        }
        cache.get(Self.query, resolve: first.take)
        #expect(second.told == ["new from disk"])
        #expect(first.told == ["new from disk"])
    }

    @Test func `I8: a look that is overtaken again and again ends, and nothing is remembered of it`() throws {
        world.settings.origins = [:]
        let (cache, vault) = try cache()
        try cache.put(Self.held, SampleImage.png("old"), timeToLive: nil)
        let reads = NIOLockedValueBox(0)
        vault.afterRead { slot in
            guard slot == Self.held else { return false }
            reads.withLockedValue { $0 += 1 }
            do {
                try cache.put(Self.held, SampleImage.png("new"), timeToLive: nil)
            } catch {
                Issue.record(error)
            }
            return false
        }
        let answers = Answers()
        cache.get(Self.query, resolve: answers.take)
        #expect(answers.told == ["null"])
        #expect(reads.withLockedValue { $0 } == 4)
        vault.afterRead { _ in true }
        cache.get(Self.query, resolve: answers.take)
        #expect(answers.told == ["null", "new from disk"])
    }

    @Test func `I8: of a look that is over nothing is kept`() {
        var lookups = LargerLookups()
        let bob = OpaqueID("bob")
        lookups.invalidate(bob)
        #expect(lookups.invalidations(of: bob) == 0)
        lookups.begin(bob)
        lookups.begin(bob)
        lookups.invalidate(bob)
        lookups.invalidate(OpaqueID("eve"))
        #expect(lookups.invalidations(of: bob) == 1)
        lookups.end(bob)
        #expect(lookups.invalidations(of: bob) == 1)
        lookups.end(bob)
        #expect(lookups.invalidations(of: bob) == 0)
    }
}

/// A vault of which a test hears when an image was read, before whoever reads it does.
private final class WatchedVault: ImageVault {
    private let vault: any ImageVault
    private let hook = NIOLockedValueBox<(@Sendable (Slot) -> Bool)?>(nil)

    init(_ vault: any ImageVault) {
        self.vault = vault
    }

    /// - Parameter hook: whether it has heard enough.
    func afterRead(_ hook: @escaping @Sendable (Slot) -> Bool) {
        self.hook.withLockedValue { $0 = hook }
    }

    func read(_ slot: Slot, framing: ReplyFraming) throws -> Image? {
        let image = try vault.read(slot, framing: framing)
        if let told = hook.withLockedValue({ $0 }), told(slot) { hook.withLockedValue { $0 = nil } }
        return image
    }

    func trimRenditions(of profile: OpaqueID, keeping slot: Slot, most: Int) throws {
        try vault.trimRenditions(of: profile, keeping: slot, most: most)
    }

    func slots(of profile: OpaqueID) throws -> [Slot]? { try vault.slots(of: profile) }

    func readCached(_ slot: Slot, framing: ReplyFraming) -> CachedRead { vault.readCached(slot, framing: framing) }

    func write(_ slot: Slot, _ image: Image, isCurrent: () -> Bool, committed: () -> Void) throws -> Bool {
        try vault.write(slot, image, isCurrent: isCurrent, committed: committed)
    }

    func makeRoom(keeping slot: Slot?) { vault.makeRoom(keeping: slot) }

    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void) throws -> Usage {
        try vault.remove(profiles, fence: fence, removed: removed)
    }

    func drop(_ slot: Slot, isCurrent: () -> Bool) throws { try vault.drop(slot, isCurrent: isCurrent) }

    var usage: Usage? { vault.usage }

    func close() { vault.close() }

    func discard() { vault.discard() }
}

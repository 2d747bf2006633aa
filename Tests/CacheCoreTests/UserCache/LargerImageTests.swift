import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// A larger image in place of a size that nobody has, as a user's cache looks for it. Memory keeps nothing, and all
/// work runs at once.
@Suite struct LargerImageTests {
    private static let missing = ImageKey(profile: OpaqueID("bob"), size: 64)
    private static let held = ImageKey(profile: OpaqueID("bob"), size: 128)
    private static let query = ImageQuery(imageKey: missing, largerWillDo: true)

    private let world = FakeWorld(memory: 0)

    private func cache() throws -> (UserCache, WatchedGenerationStore) {
        let generationStore = WatchedGenerationStore(try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0)))
        let cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil),
            services: world.services)
        return (cache, generationStore)
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
        let (cache, generationStore) = try cache()
        try cache.put(Self.held, SampleImage.png("old"), timeToLive: nil)
        let (first, second) = (Answers(), Answers())
        generationStore.afterRead { imageKey in
            guard imageKey == Self.held else { return false }
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
        let (cache, generationStore) = try cache()
        try cache.put(Self.held, SampleImage.png("old"), timeToLive: nil)
        let reads = NIOLockedValueBox(0)
        generationStore.afterRead { imageKey in
            guard imageKey == Self.held else { return false }
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
        generationStore.afterRead { _ in true }
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

/// A generation store of which a test hears when an image was read, before whoever reads it does.
private final class WatchedGenerationStore: GenerationStore {
    private let generationStore: any GenerationStore
    private let hook = NIOLockedValueBox<(@Sendable (ImageKey) -> Bool)?>(nil)

    init(_ generationStore: any GenerationStore) {
        self.generationStore = generationStore
    }

    /// - Parameter hook: whether it has heard enough.
    func afterRead(_ hook: @escaping @Sendable (ImageKey) -> Bool) {
        self.hook.withLockedValue { $0 = hook }
    }

    func read(_ imageKey: ImageKey, framing: ReplyFraming) throws -> Image? {
        let image = try generationStore.read(imageKey, framing: framing)
        if let told = hook.withLockedValue({ $0 }), told(imageKey) { hook.withLockedValue { $0 = nil } }
        return image
    }

    func trimRenditions(of profile: OpaqueID, keeping imageKey: ImageKey, most: Int) throws {
        try generationStore.trimRenditions(of: profile, keeping: imageKey, most: most)
    }

    func imageKeys(of profile: OpaqueID) throws -> [ImageKey]? { try generationStore.imageKeys(of: profile) }

    func readCached(_ imageKey: ImageKey, framing: ReplyFraming) -> CachedRead {
        generationStore.readCached(imageKey, framing: framing)
    }

    func write(_ imageKey: ImageKey, _ image: Image, isCurrent: () -> Bool, committed: () -> Void) throws -> Bool {
        try generationStore.write(imageKey, image, isCurrent: isCurrent, committed: committed)
    }

    func makeRoom(keeping imageKey: ImageKey?) { generationStore.makeRoom(keeping: imageKey) }

    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void) throws -> Usage {
        try generationStore.remove(profiles, fence: fence, removed: removed)
    }

    func drop(_ imageKey: ImageKey, isCurrent: () -> Bool) throws {
        try generationStore.drop(imageKey, isCurrent: isCurrent)
    }

    var usage: Usage? { generationStore.usage }

    func close() { generationStore.close() }

    func discard() { generationStore.discard() }
}

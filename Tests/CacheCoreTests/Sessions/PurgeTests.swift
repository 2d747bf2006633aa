import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct PurgeTests {
    private let daemon = Daemon()

    @Test func `I3: a purge empties the cache, the user stays logged in, and F42: what is put after it is kept`()
        async throws
    {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        _ = daemon.world.log.take()
        let receipt = try await daemon.purge(.alice)
        #expect(receipt.users == 1 && receipt.usage == Usage(images: 1, bytes: 128) && receipt.sessions == 1)
        #expect(daemon.world.log.events == ["close", "wipe", "commitPurge", "discard"])
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        try await daemon.put(.alice, "bob", "new")
        #expect(await daemon.get(.alice, "bob") == "new from memory")
        #expect(await daemon.restarted().get(.alice, "bob") == "new from disk")
        #expect(daemon.store.violations == [])
    }

    @Test func `I3: whoever still holds the old generation gets nothing from it and puts nothing into it`() async throws
    {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let old = try await daemon.sessions.cache(.alice)
        _ = try await daemon.purge(.alice)
        let imageKey = ImageKey(profile: OpaqueID("bob"))
        #expect(old.hit(imageKey) == nil)
        #expect(await old.outcome(ImageQuery(imageKey: imageKey)) == "cancelled")
        #expect(throws: CacheFailure.cancelled) { try old.put(imageKey, SampleImage.png("late"), timeToLive: nil) }
        #expect(try await daemon.sessions.cache(.alice) !== old)
        #expect(daemon.store.held(by: .alice) == [])
    }

    @Test func `a later GET downloads anew, and the download from before the purge does not end it`() async throws {
        try await daemon.logIn(.alice)
        let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))
        let answers = Answers()
        _ = try await daemon.sessions.cache(.alice).get(query, resolve: answers.take)
        #expect(try await daemon.purge(.alice).cancelled == 1)
        _ = try await daemon.sessions.cache(.alice).get(query, resolve: answers.take)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("old"))
        daemon.fetcher.downloads[1].end(SampleImage.downloaded("new"))
        #expect(answers.told == ["cancelled", "new from origin"])
        #expect(daemon.store.held(by: .alice) == ["new"])
    }

    @Test func `PURGE of profiles removes those in every size, and tells what was held`() async throws {
        try await daemon.logIn(.alice)
        for profile in ["bob", "carol", "*", "UID"] { try await daemon.put(.alice, profile, profile) }
        // F63: `*` and `UID` are ordinary profiles.
        let receipt = try await daemon.purge(.alice, "bob", "*", "nobody")
        #expect(receipt.users == 1 && receipt.usage == Usage(images: 2, bytes: 256) && receipt.sessions == 1)
        #expect(daemon.store.held(by: .alice) == ["UID", "carol"])
        #expect(try await daemon.purge(.alice, "nobody").usage == Usage())
    }

    @Test func `I4: profiles that cannot be removed are purged with all the rest`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "bob")
        try await daemon.put(.alice, "carol", "carol")
        daemon.store.fail(.remove)
        let receipt = try await daemon.purge(.alice, "bob")
        #expect(receipt.users == 1 && receipt.sessions == 1)
        #expect(daemon.store.held(by: .alice) == [])
        #expect(daemon.store.calls(.commitPurge) == 1)
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `PURGE of all empties every user of the uid; each stays logged in`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        try await daemon.put(.alice, "bob", "mine")
        let receipt = try await daemon.logout.purgeAll(uid: 1000, profiles: [])
        #expect(receipt.users == 2 && receipt.usage == Usage(images: 1, bytes: 128) && receipt.sessions == 2)
        #expect(try await daemon.users() == ["alice", "carol"])
        try await daemon.put(.alice, "bob", "mine")
        let some = try await daemon.logout.purgeAll(uid: 1000, profiles: [OpaqueID("bob")])
        #expect(some.users == 2 && some.usage == Usage(images: 1, bytes: 128))
    }

    @Test func `an epoch grows with every log-in, purge and log-out of the uid, also across restarts`() async throws {
        var epochs: [UInt64] = [daemon.sessions.epochs.current(of: 1000)]
        try await daemon.logIn(.alice)
        epochs.append(try await daemon.sessions.cache(.alice).epoch)
        epochs.append(try await daemon.purge(.alice).epoch)
        try await daemon.logIn(.alice, session: "two")
        epochs.append(try await daemon.purge(.alice, "bob").epoch)
        epochs.append(try await daemon.logOut(.alice, session: "two").epoch)
        epochs.append(try await daemon.logout.purgeAll(uid: 1000, profiles: []).epoch)
        epochs.append(try await daemon.logOut(.alice).epoch)
        epochs.append(try await daemon.logout.logOutAll(uid: 1000).epoch)
        epochs.append(try await daemon.restarted().logOut(.alice).epoch)
        #expect(zip(epochs, epochs.dropFirst()).allSatisfy { $0 < $1 })
    }
}

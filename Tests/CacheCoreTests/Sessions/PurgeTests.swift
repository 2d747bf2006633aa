import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct PurgeTests {
    private let daemon = Daemon()

    @Test func `I3, F42: a purge empties the cache, keeps the login, and later PUTs are stored`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        _ = daemon.world.log.removeAll()
        let receipt = try await daemon.purge(.alice)
        #expect(receipt.users == 1 && receipt.usage == Usage(images: 1, bytes: 128) && receipt.sessions == 1)
        #expect(daemon.world.log.events == ["close", "wipe", "commitPurge", "discard"])
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        try await daemon.put(.alice, "bob", "new")
        #expect(await daemon.get(.alice, "bob") == "new from memory")
        #expect(await daemon.restarted().get(.alice, "bob") == "new from disk")
        #expect(daemon.store.violations == [])
    }

    @Test func `I3: the old generation accepts no reads and writes`() async throws {
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

    @Test func `a GET after a purge starts a new download, which the old one does not complete`() async throws {
        try await daemon.logIn(.alice)
        let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))
        let answers = Answers()
        _ = try await daemon.sessions.cache(.alice).get(query, resolve: answers.record)
        #expect(try await daemon.purge(.alice).cancelled == 1)
        _ = try await daemon.sessions.cache(.alice).get(query, resolve: answers.record)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("old"))
        daemon.fetcher.downloads[1].end(SampleImage.downloaded("new"))
        #expect(answers.outcomes == ["cancelled", "new from origin"])
        #expect(daemon.store.held(by: .alice) == ["new"])
    }

    @Test func `PURGE of profiles removes every size and reports the removed images`() async throws {
        try await daemon.logIn(.alice)
        for profile in ["bob", "carol", "*", "UID"] { try await daemon.put(.alice, profile, profile) }
        // F63: `*` and `UID` are ordinary profiles.
        let receipt = try await daemon.purge(.alice, "bob", "*", "nobody")
        #expect(receipt.users == 1 && receipt.usage == Usage(images: 2, bytes: 256) && receipt.sessions == 1)
        #expect(daemon.store.held(by: .alice) == ["UID", "carol"])
        #expect(try await daemon.purge(.alice, "nobody").usage == Usage())
    }

    /// A power cut could otherwise restore an earlier key file, whose images include the profile.
    @Test func `I4: a purge of a profile first makes the login durable`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        _ = next.world.log.removeAll()
        _ = try await next.purge(.alice, "bob")
        #expect(next.world.log.events.filter { ["makeDurable", "remove"].contains($0) } == ["makeDurable", "remove"])
    }

    @Test func `I4: if the login cannot be made durable, a purge of a profile purges all images`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "carol", "hers")
        _ = daemon.world.log.removeAll()
        daemon.store.fail(.makeDurable)
        #expect(try await daemon.purge(.alice, "bob").users == 1)
        #expect(daemon.world.log.events == ["makeDurable", "close", "wipe", "commitPurge", "discard"])
        #expect(await daemon.get(.alice, "carol", cached: true) == "null")
    }

    @Test func `I4: if nothing can be made durable, a purge of a profile fails and closes the user`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.makeDurable)
        daemon.store.fail(.commitPurge)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.purge(.alice, "bob") }
        #expect(await daemon.get(.alice, "bob") == "inputOutput(\"purge or logout not durable yet, retrying: EIO\")")
    }

    @Test func `I4: if profiles cannot be removed, all images are purged`() async throws {
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

    @Test func `PURGE of all empties every user of the uid and keeps the logins`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        try await daemon.put(.alice, "bob", "mine")
        let receipt = try await daemon.invalidationService.purgeAll(uid: 1000, profiles: [])
        #expect(receipt.users == 2 && receipt.usage == Usage(images: 1, bytes: 128) && receipt.sessions == 2)
        #expect(try await daemon.users() == ["alice", "carol"])
        try await daemon.put(.alice, "bob", "mine")
        let some = try await daemon.invalidationService.purgeAll(uid: 1000, profiles: [OpaqueID("bob")])
        #expect(some.users == 2 && some.usage == Usage(images: 1, bytes: 128))
    }

    @Test func `the epoch increases with every login, purge and logout of the uid, also across restarts`() async throws
    {
        var epochs: [UInt64] = [daemon.sessions.epochs.current(of: 1000)]
        try await daemon.logIn(.alice)
        epochs.append(try await daemon.sessions.cache(.alice).epoch)
        epochs.append(try await daemon.purge(.alice).epoch)
        try await daemon.logIn(.alice, session: "two")
        epochs.append(try await daemon.purge(.alice, "bob").epoch)
        epochs.append(try await daemon.logOut(.alice, session: "two").epoch)
        epochs.append(try await daemon.invalidationService.purgeAll(uid: 1000, profiles: []).epoch)
        epochs.append(try await daemon.logOut(.alice).epoch)
        epochs.append(try await daemon.invalidationService.logOutAll(uid: 1000).epoch)
        epochs.append(try await daemon.restarted().logOut(.alice).epoch)
        #expect(zip(epochs, epochs.dropFirst()).allSatisfy { $0 < $1 })
    }
}

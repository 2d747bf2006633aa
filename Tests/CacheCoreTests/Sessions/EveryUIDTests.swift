import CacheFakes
import Testing

@testable import CacheCore

/// `UID *`: one command for a user in all uids.
@Suite(.timeLimit(.minutes(5))) struct EveryUIDTests {
    private let daemon = Daemon()
    private let alice = OpaqueID("alice")

    private func logInBoth(_ daemon: Daemon) async throws {
        for (owner, label) in [(Owner.alice, "one"), (.otherAlice, "two"), (.carol, "carol")] {
            try await daemon.logIn(owner)
            try await daemon.put(owner, "bob", label)
        }
    }

    @Test(arguments: [false, true])
    func `I3, I4: a logout in every uid includes uids that no request has named since the start`(
        afterRestart: Bool
    ) async throws {
        try await logInBoth(daemon)
        let daemon = afterRestart ? daemon.restarted() : daemon
        let receipt = try await daemon.invalidationService.logOutInEveryUID(alice, caller: 0)
        #expect(receipt.users == 2)
        // Not counted yet after a restart.
        #expect(receipt.usage == (afterRestart ? nil : Usage(images: 2, bytes: 256)))
        for daemon in [daemon, daemon.restarted()] {
            for owner in [Owner.alice, .otherAlice] {
                #expect(await daemon.get(owner, "bob") == "notLoggedIn")
                #expect(daemon.store.login(of: owner) == nil)
            }
            #expect(await daemon.get(.carol, "bob", cached: true).hasPrefix("carol"))
        }
        #expect(daemon.store.violations == [])
        // Succeeds although no uid has the user.
        let again = try await daemon.invalidationService.logOutInEveryUID(alice, caller: 0)
        #expect(again.users == 0 && again.usage == Usage() && again.epoch > 0)
    }

    @Test func `I3: downloads in flight are cancelled in all uids`() async throws {
        for owner in [Owner.alice, .otherAlice] {
            try await daemon.logIn(owner)
            _ = try await daemon.sessions.cache(owner).get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) {
                _ in
            }
        }
        #expect(try await daemon.invalidationService.purgeInEveryUID(alice, profiles: [], caller: 0).cancelled == 2)
        for download in daemon.fetcher.downloads { download.end(SampleImage.downloaded("late")) }
        for owner in [Owner.alice, .otherAlice] {
            #expect(await daemon.get(owner, "bob", cached: true) == "null")
            #expect(daemon.store.held(by: owner) == [])
        }
        #expect(try await daemon.users() == ["alice"])
    }

    @Test func `a session and profiles apply to each uid`() async throws {
        try await logInBoth(daemon)
        try await daemon.logIn(.alice, session: "desk")
        try await daemon.put(.alice, "dan", "kept")
        let purged = try await daemon.invalidationService.purgeInEveryUID(alice, profiles: [OpaqueID("bob")], caller: 0)
        #expect(purged.users == 2 && purged.usage?.images == 2 && purged.sessions == 3)
        #expect(await daemon.get(.alice, "dan", cached: true).hasPrefix("kept"))
        #expect(await daemon.get(.otherAlice, "bob", cached: true) == "null")
        let receipt = try await daemon.invalidationService.logOutInEveryUID(
            alice, session: OpaqueID("default"), caller: 0)
        #expect(receipt.users == 1 && receipt.sessions == 1)
        #expect(try await daemon.users() == ["alice", "carol"])
    }

    @Test func `all users in every uid`() async throws {
        try await logInBoth(daemon)
        #expect(try await daemon.invalidationService.purgeInEveryUID(nil, profiles: [], caller: 0).users == 3)
        #expect(try await daemon.invalidationService.logOutInEveryUID(nil, caller: 0).users == 3)
        for uid: UInt32 in [1000, 1001] { #expect(try await daemon.users(uid) == []) }
    }

    @Test func `I4: a failure in one uid is reported, the others are processed, and a retry completes it`()
        async throws
    {
        try await logInBoth(daemon)
        daemon.store.fail(.commitLogout, times: 1)
        await #expect(throws: CacheFailure.inputOutput("failed in 1 of 2 uids, retry: EIO")) {
            try await daemon.invalidationService.logOutInEveryUID(alice, caller: 0)
        }
        let owners = [Owner.alice, .otherAlice]
        #expect(owners.count { daemon.store.login(of: $0) != nil } == 1)
        var states: [String] = []
        for owner in owners { states.append(await daemon.get(owner, "bob")) }
        #expect(states.contains("notLoggedIn") && states.contains { $0.hasPrefix("inputOutput") })
        #expect(try await daemon.invalidationService.logOutInEveryUID(alice, caller: 0).users == 1)
        #expect(owners.allSatisfy { daemon.store.login(of: $0) == nil })
    }

    @Test func `I4: if the uids cannot be listed, known users are logged out and the command fails`() async throws {
        try await logInBoth(daemon)
        daemon.store.fail(.uids)
        let reason = "the uids on disk could not be listed; only those in memory were tried: EIO"
        await #expect(throws: CacheFailure.inputOutput(reason)) {
            try await daemon.invalidationService.logOutInEveryUID(alice, caller: 0)
        }
        #expect(daemon.store.login(of: .alice) == nil && daemon.store.login(of: .otherAlice) == nil)
    }

    @Test func `it costs one listing, and one lookup for each uid`() async throws {
        try await logInBoth(daemon)
        let daemon = daemon.restarted()
        _ = try await daemon.invalidationService.logOutInEveryUID(OpaqueID("nobody"), caller: 0)
        #expect(daemon.store.calls(.uids) == 1 && daemon.store.calls(.load) == 2 && daemon.store.calls(.users) == 0)
        #expect(daemon.sessions.knownOwners == 0)
        #expect(daemon.world.services.counters[.logouts] == 1)
    }
}

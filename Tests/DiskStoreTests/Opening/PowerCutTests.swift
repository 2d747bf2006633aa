import CacheCore
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// Cuts the power after any change of an operation, with any of the changes that were not durable lost: see
/// ``Survival``.
@Suite struct PowerCutTests {
    private static let survivals: [Survival] = [.durable, .everything] + (1...2).map { .seeded($0) }

    /// One run of an operation: the range of possible cuts, and the first cut after its receipt.
    private struct Run {
        let disk: ForgetfulSystem
        let first: Int
        let epochBase: UInt64
        var receipt: Int?
    }

    private func run(_ scene: Scene, on disk: ForgetfulSystem) throws -> Run {
        let first = disk.changes
        return try scene.withStore(disk) { store in
            var run = Run(disk: disk, first: first, epochBase: store.epochBase)
            try scene.operation(store, try scene.prepare(store)) { run.receipt = disk.changes }
            return run
        }
    }

    /// Starts twice after a cut and checks the store.
    private func check(_ scene: Scene, _ run: Run, cutAfter cut: Int, _ survival: Survival) throws {
        // Varies the seed by cut, so that the first changes do not always share their fate.
        var survival = survival
        if case .seeded(let seed) = survival { survival = .seeded(seed + 2 * UInt64(cut)) }
        let outcome = Scene.Outcome(
            isDone: run.receipt.map { cut >= $0 } ?? false, mayLoseImages: survival != .everything,
            what: "\(scene), cut after change \(cut) of \(run.first)...\(run.disk.changes): \(survival)")
        let disk = ForgetfulSystem(run.disk.volume(cutAfter: cut, survival, operation: run.first))
        let remnants = disk.volume.keyRemnants
        do {
            try scene.withStore(disk) { store in
                if outcome.isDone { #expect(store.epochBase > run.epochBase, outcome.what) }
                try scene.checkAll(store, outcome)
                // An interrupted login is absent and not reported as damage, because the session file is written first.
                if scene.testDescription == Scene.login.testDescription {
                    #expect(store.counters[.damagedLogins] == 0, outcome.what)
                }
                // Expensive, so it runs for some seeds only.
                if case .seeded(let seed) = survival, seed % 5 > 0 { return }
                store.maintain()
                try scene.checkAll(store, outcome)
                scene.checkTidy(disk, store, outcome)
            }
            if outcome.isDone { #expect(remnants == 0, outcome.what) }
        } catch  where !(error is ExpectationFailedError) {
            Issue.record(error, outcome.what)
        }
    }

    @Test(arguments: Scene.all)
    func
        `F1, F2, F3, F43, F70, I4: a kill or power cut breaks no receipt and tears no image`(
            scene: Scene
        ) throws
    {
        let run = try run(scene, on: scene.disk())
        #expect(run.receipt != nil)
        for cut in run.first...run.disk.changes {
            for survival in Self.survivals { try check(scene, run, cutAfter: cut, survival) }
        }
    }

    /// A kill loses nothing that was written; the power cut after it does.
    @Test(arguments: Scene.all)
    func `F1, F2, I4: a power cut does not undo a receipt that follows a killed attempt`(
        scene: Scene
    ) throws {
        let attempt = try run(scene, on: scene.disk())
        for death in attempt.first...attempt.disk.changes {
            // Repeats an operation that was killed after its commit, as a client without a receipt does.
            let run = try run(scene, on: attempt.disk.killed(after: death))
            let receipt = try #require(run.receipt)
            for survival in [Survival.durable, .seeded(2)] { try check(scene, run, cutAfter: receipt, survival) }
        }
    }

    @Test(arguments: PowerCutTests.survivals)
    func `F2: a first start succeeds after a power cut during the previous attempt`(survival: Survival) throws {
        let scene = Scene.login
        let disk = ForgetfulSystem()
        for directory in ["cache", "state"] as [FileName] { try disk.plantDirectory(directory) }
        let first = disk.changes
        try scene.withStore(disk) { $0.maintain() }
        for cut in first...disk.changes {
            let left = ForgetfulSystem(disk.volume(cutAfter: cut, survival, operation: first))
            try scene.withStore(left) { store in
                try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
                store.maintain()
            }
            let found = try scene.withStore(left) { try $0.load(alice)?.generationStore.bytes(imageKey("bob")) }
            #expect(found == testImage(1).content)
        }
    }
}

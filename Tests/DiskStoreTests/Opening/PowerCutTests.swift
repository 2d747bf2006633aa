import CacheCore
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// The power goes behind any change of an operation, and of what was not made durable anything may be left: see
/// ``Survival``.
@Suite struct PowerCutTests {
    private static let survivals: [Survival] = [.durable, .everything] + (1...2).map { .seeded($0) }

    /// One run of a scene: where the power can be cut, and from where on its promise stands.
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

    /// Starts on what a cut leaves, twice, and looks at it.
    private func check(_ scene: Scene, _ run: Run, cutBehind cut: Int, _ survival: Survival) throws {
        // The seed of the cut is not the same everywhere: the first ten changes would always fare alike.
        var survival = survival
        if case .seeded(let seed) = survival { survival = .seeded(seed + 2 * UInt64(cut)) }
        let outcome = Scene.Outcome(
            isDone: run.receipt.map { cut >= $0 } ?? false, mayLoseImages: survival != .everything,
            what: "\(scene), cut behind change \(cut) of \(run.first)...\(run.disk.changes): \(survival)")
        let disk = ForgetfulSystem(run.disk.volume(cutBehind: cut, survival, operation: run.first))
        let remnants = disk.volume.keyRemnants
        do {
            try scene.withStore(disk) { store in
                if outcome.isDone { #expect(store.epochBase > run.epochBase, outcome.what) }
                try scene.checkAll(store, outcome)
                // One that was cut short is none, and nobody is told of damage: the session file comes first.
                if scene.testDescription == Scene.login.testDescription {
                    #expect(store.counters[.damagedLogins] == 0, outcome.what)
                }
                // It costs more than all the rest, so that chance decides for some.
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
        `F1, F2, F3, F43, F70, I4: death or loss of power anywhere breaks no receipt and tears no image`(
            scene: Scene
        ) throws
    {
        let run = try run(scene, on: scene.disk())
        #expect(run.receipt != nil)
        for cut in run.first...run.disk.changes {
            for survival in Self.survivals { try check(scene, run, cutBehind: cut, survival) }
        }
    }

    /// What the killed daemon wrote is in the kernel's memory, where the next one finds it.
    @Test(arguments: Scene.all)
    func `F1, F2, I4: a receipt behind an attempt that was killed is none that a loss of power takes back`(
        scene: Scene
    ) throws {
        let attempt = try run(scene, on: scene.disk())
        for death in attempt.first...attempt.disk.changes {
            // One that had died behind its commit is done anew, as whoever got no receipt asks for it.
            let run = try run(scene, on: attempt.disk.killed(behind: death))
            let receipt = try #require(run.receipt)
            for survival in [Survival.durable, .seeded(2)] { try check(scene, run, cutBehind: receipt, survival) }
        }
    }

    @Test(arguments: PowerCutTests.survivals)
    func `F2: the first start is begun anew after a loss of power`(survival: Survival) throws {
        let scene = Scene.login
        let disk = ForgetfulSystem()
        for directory in ["cache", "state"] as [FileName] { try disk.plantDirectory(directory) }
        let first = disk.changes
        try scene.withStore(disk) { $0.maintain() }
        for cut in first...disk.changes {
            let left = ForgetfulSystem(disk.volume(cutBehind: cut, survival, operation: first))
            try scene.withStore(left) { store in
                try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
                store.maintain()
            }
            let found = try scene.withStore(left) { try $0.load(alice)?.generationStore.bytes(imageKey("bob")) }
            #expect(found == picture(1).content)
        }
    }
}

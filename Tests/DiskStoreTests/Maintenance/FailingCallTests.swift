import CacheCore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// Fails every call of every operation: that call alone, with all later ones of its kind, or with all later ones. Then
/// the disk recovers.
///
/// Each call fails with one of its possible errors in turn. With THUMBCACHED_EVERY_ERROR, each call fails with each
/// error in each way, which takes minutes.
@Suite struct FailingCallTests {
    enum Extent: CaseIterable {
        case once, kind, all
    }

    private let isThorough = ProcessInfo.processInfo.environment["THUMBCACHED_EVERY_ERROR"] != nil

    private struct Failure: CustomStringConvertible {
        let number: Int
        let call: SystemCall
        let fault: FaultySystem.Fault
        let extent: Extent

        var description: String {
            "call \(number), \(call.rawValue), \(fault), " + "\(extent)"
        }

        var code: Int32? { if case .fail(let code) = fault { code } else { nil } }
        var isNoSpace: Bool { code == ENOSPC || code == EDQUOT }
        /// The error contradicts the disk: the file exists, and the store may remove it.
        var contradictsDisk: Bool { code == ENOENT || code == ELOOP }

        /// Which calls fail if this one does.
        func plan() -> FaultySystem.Plan {
            let hasBegun = NIOLockedValueBox(false)
            return { call, number, _ in
                if number == self.number { hasBegun.withLockedValue { $0 = true } }
                guard hasBegun.withLockedValue({ $0 }) else { return nil }
                switch extent {
                case .once: return number == self.number ? fault : nil
                case .kind: return call == self.call ? fault : nil
                case .all: return call == self.call || code.map { call.codes.contains($0) } == true ? fault : nil
                }
            }
        }
    }

    @Test(arguments: Scene.all + [.get], Extent.allCases)
    func `F4, F5, F7, F8, F9, F13, F61: after any failing call an operation is complete or has no receipt`(
        scene: Scene, extent: Extent
    ) throws {
        let start = try scene.disk().volume
        let calls = Recorder()
        let system = FaultySystem(over: ForgetfulSystem(start))
        try scene.withStore(system) { store in
            let generationStore = try scene.prepare(store)
            system.plan { call, _, _ in
                calls.note(call)
                return nil
            }
            try scene.operation(store, generationStore) {}
            system.heal()
        }
        #expect(!calls.calls.isEmpty)
        for (index, call) in calls.calls.enumerated() where isThorough || !calls.repeatsPrevious(index) {
            // A permanent failure from one call on is usually like that from the next.
            if !isThorough, extent != .once, index % 2 == 1 { continue }
            let faults = call.faults(extent)
            let due = (extent == .once ? index : index / 2) % faults.count
            for (turn, fault) in faults.enumerated() where isThorough || turn == due {
                try fail(Failure(number: index + 1, call: call, fault: fault, extent: extent), scene, start)
            }
        }
    }

    private func fail(_ failure: Failure, _ scene: Scene, _ start: Volume) throws {
        let disk = ForgetfulSystem(start)
        let system = FaultySystem(over: disk)
        var outcome = Scene.Outcome(
            isDone: false,
            mayLoseImages: failure.isNoSpace || failure.contradictsDisk || scene.isRead && failure.code == EIO,
            what: "\(scene), \(failure)")
        do {
            try scene.withStore(system) { store in
                let generationStore = try scene.prepare(store)
                system.plan(failure.plan())
                do {
                    try scene.operation(store, generationStore) { outcome.isDone = true }
                } catch {
                    #expect(error is StoreError, outcome.what)
                }
                system.heal()
                if failure.contradictsDisk { return }
                try scene.checkAll(store, outcome)
                if !outcome.isDone { try scene.operation(store, generationStore) { outcome.isDone = true } }
                try scene.checkAll(store, outcome)
                // Expensive, and permanent failures leave more files than single ones.
                guard isThorough || failure.extent == .all || failure.number % 2 == 0 else { return }
                store.maintain()
                if !scene.isMaintenance { scene.checkTidy(disk, store, outcome) }
                try scene.checkAll(store, outcome)
            }
            #expect(system.descriptors == 0 && disk.descriptors == 0, outcome.what)
            try scene.withStore(disk) { store in
                if !failure.contradictsDisk { try scene.checkAll(store, outcome) }
                // Covered above with THUMBCACHED_EVERY_ERROR.
                guard isThorough || failure.contradictsDisk || scene.isMaintenance || failure.number % 4 == 0 else {
                    return
                }
                store.maintain()
                scene.checkTidy(disk, store, outcome)
            }
        } catch  where !(error is ExpectationFailedError) {
            Issue.record(error, outcome.what)
        }
    }

    @Test(arguments: Extent.allCases)
    func `F8, F13, F15: after any failing call of a start, the next start succeeds`(extent: Extent) throws {
        let scene = Scene.put
        let start = try scene.disk().volume
        let calls = Recorder()
        let system = FaultySystem(over: ForgetfulSystem(start))
        system.plan { call, _, _ in
            calls.note(call)
            return nil
        }
        try scene.withStore(system) { _ in }
        for (index, call) in calls.calls.enumerated() {
            let faults = call.faults(extent)
            for (turn, fault) in faults.enumerated() where isThorough || turn == index % faults.count {
                let failure = Failure(number: index + 1, call: call, fault: fault, extent: extent)
                if failure.contradictsDisk { continue }
                let outcome = Scene.Outcome(isDone: false, what: "a start, \(failure)")
                let disk = ForgetfulSystem(start)
                let system = FaultySystem(over: disk)
                system.plan(failure.plan())
                do {
                    try scene.withStore(system) { store in
                        system.heal()
                        try scene.checkAll(store, outcome)
                    }
                } catch {
                    #expect(error is StoreError || error is StoreStartError, outcome.what)
                }
                #expect(system.descriptors == 0, outcome.what)
                try scene.withStore(disk) { try scene.checkAll($0, outcome) }
            }
        }
    }
}

extension Recorder {
    /// Whether the two previous calls are of the same kind, as in a scan of 256 buckets.
    fileprivate func repeatsPrevious(_ index: Int) -> Bool {
        let calls = calls
        return index > 1 && calls[index - 1] == calls[index] && calls[index - 2] == calls[index]
    }
}

extension SystemCall {
    /// Possible errors of the call, except EINTR, which is retried.
    fileprivate var codes: [Int32] {
        switch self {
        case .open: [EIO, EMFILE, ENOSPC, EROFS, ENOMEM, EACCES, ENFILE, EDQUOT, ENOENT, ELOOP]
        case .makeDirectory, .rename, .exchange: [EIO, ENOSPC, EROFS, ENOMEM, EDQUOT, EACCES]
        case .unlink, .removeDirectory: [EIO, EROFS, ENOSPC, ENOMEM, EACCES]
        case .statusOfDescriptor, .statusOfName: [EIO, ENOMEM]
        case .openCached: [EAGAIN, EMFILE, EIO]
        case .readCached: [EAGAIN, EIO, EOPNOTSUPP]
        case .write, .sync: [EIO, ENOSPC, EDQUOT, EROFS]
        case .read, .list: [EIO, ENOMEM]
        case .lock: [EIO, ENOMEM]
        case .touch: [EIO, EROFS]
        case .close: []
        }
    }

    fileprivate func faults(_ extent: FailingCallTests.Extent) -> [FaultySystem.Fault] {
        let codes = codes.map(FaultySystem.Fault.fail)
        switch (self, extent) {
        case (.read, .once), (.write, .once): return codes + [.short, .fail(EINTR)]
        case (.open, .once), (.sync, .once), (.list, .once): return codes + [.fail(EINTR)]
        case (.read, .kind), (.write, .kind): return codes + [.short]
        default: return codes
        }
    }
}

import CacheFakes
import LinuxSupport
import Testing

@testable import CacheCore

/// Memory that users and sessions are charged for (I8, F67).
@Suite struct UserMemoryTests {
    private let budget: MemoryBudget
    private let daemon: Daemon

    init() {
        let budget = MemoryBudget(limits: { MemoryBudget.Limits(perAccount: 100_000, total: 1 << 20) })
        self.budget = budget
        daemon = Daemon(budget: budget)
    }

    private func owner(_ number: Int, uid: UInt32 = 1000) -> Owner { Owner(uid: uid, user: OpaqueID("user \(number)")) }

    /// Logs in until memory runs out. Returns the number of successful logins.
    private func fill(_ logIn: (Int) async throws -> Void) async throws -> Int {
        for number in 0..<1_000 {
            do {
                try await logIn(number)
            } catch {
                let isBusy = if case .busy(let reason) = CacheFailure(error) { reason } else { "\(error)" }
                #expect(isBusy.hasPrefix("limits.memory-per-uid (100000 bytes): account "))
                return number
            }
        }
        return 1_000
    }

    @Test func `F67: a uid that logs in many users is BUSY at its budget; other uids are not affected`() async throws {
        let users = try await fill { number in
            try await daemon.sessions.logIn(owner(number), LoginRequest(session: OpaqueID("s")))
        }
        #expect((10...25).contains(users))
        #expect(budget.bytes(of: 1000) <= 100_000)
        try await daemon.sessions.logIn(owner(0, uid: 1001), LoginRequest(session: OpaqueID("s")))
        // Existing logins remain, and a logout releases memory.
        #expect(daemon.sessions.openCache(owner(0)) != nil)
        _ = try await daemon.invalidationService.logOut(owner(0))
        try await daemon.sessions.logIn(owner(1_000), LoginRequest(session: OpaqueID("s")))
        _ = try await daemon.invalidationService.logOutAll(uid: 1000)
        #expect(budget.bytes(of: 1000) == 0)
    }

    @Test func `F67: a uid that holds many sessions is BUSY at its budget, and closing sessions releases memory`()
        async throws
    {
        daemon.world.settings.sessionsPerUser = 1_000
        func session(_ number: Int) -> OpaqueID { OpaqueID("\(number)" + String(repeating: "s", count: 500)) }
        let held = try await fill { number in
            try await daemon.sessions.logIn(owner(0), LoginRequest(session: session(number), heldBy: UInt64(number)))
        }
        #expect((30...60).contains(held))
        #expect(budget.bytes(of: 1000) <= 100_000)
        for number in 1..<held {
            try await daemon.invalidationService.release(owner(0), session: session(number), connection: UInt64(number))
        }
        #expect(budget.bytes(of: 1000) < 10_000)
    }

    @Test func `F67: tokens are charged, and a login that exceeds the budget leaves nothing`() async throws {
        let token = Secret(Array(repeating: 7, count: 99_000))
        await #expect(throws: CacheFailure.self) {
            try await daemon.sessions.logIn(owner(0), LoginRequest(session: OpaqueID("s"), token: token))
        }
        #expect(budget.bytes == 0)
        try await daemon.sessions.logIn(owner(0), LoginRequest(session: OpaqueID("s")))
        await #expect(throws: CacheFailure.self) {
            try await daemon.sessions.logIn(owner(0), LoginRequest(session: OpaqueID("s"), token: token))
        }
        #expect(budget.bytes(of: 1000) < 10_000)
    }
}

import CacheFakes
import Foundation
import Logging
import Testing

@testable import thumbcached

/// Ranges that are added while the daemon runs (F80).
@Suite struct LiveAccountsTests {
    private static let second: Int64 = 1_000_000_000
    private let path = FileManager.default.temporaryDirectory.appending(path: "subuid-\(UUID().uuidString)").path
    private let pool = GatedPool()

    private func write(_ text: String) throws {
        try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
    }

    private func accounts() -> LiveAccounts {
        LiveAccounts(path: path, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    @Test func `F80: a range that is added after the start takes effect at a uid's next connection`()
        throws
    {
        defer { unlink(path) }
        let accounts = accounts()
        accounts.read()
        func connect(_ uid: UInt32, at now: Int64) -> UInt32 {
            defer { pool.runAll() }
            return accounts.account(ofPeer: uid, at: now, readingOn: pool)
        }
        #expect(connect(100_000, at: 0) == 100_000)
        try write("1000:100000:10\n")
        #expect(connect(100_000, at: Self.second) == 100_000)
        #expect(connect(100_000, at: Self.second) == 1000 && accounts.account(of: 100_009) == 1000)
        try write("1000:100000:10\n1001:200000:10\n")
        #expect(connect(200_000, at: 2 * Self.second) == 200_000)
        #expect(connect(200_000, at: 2 * Self.second) == 1001)
        unlink(path)
        #expect(connect(1000, at: 3 * Self.second) == 1000)
        #expect(connect(200_000, at: 3 * Self.second) == 200_000)
    }

    @Test func `I8: the file is checked for uids in no range only, and once a second`() throws {
        defer { unlink(path) }
        try write("1000:100000:10\n")
        let accounts = accounts()
        accounts.read()
        func lookups(_ uid: UInt32, at now: Int64) -> Int {
            let before = pool.count
            _ = accounts.account(ofPeer: uid, at: now, readingOn: pool)
            return pool.count - before
        }
        #expect(lookups(100_000, at: 0) == 0)
        #expect(lookups(1000, at: 0) == 1)
        #expect(lookups(1000, at: Self.second - 1) == 0)
        #expect(lookups(100_010, at: Self.second) == 1)
    }
}

import Testing

@testable @_spi(Wire) import Thumbcache

@Suite struct BackoffTests {
    @Test(arguments: [(1, 100), (2, 200), (3, 400), (4, 500), (64, 500), (.max, 500)])
    func `the pause doubles with each failure, up to the longest`(failures: Int, milliseconds: Int) {
        let backoff = Backoff(first: .milliseconds(100), longest: .milliseconds(500))
        #expect(backoff.pause(after: failures, random: 1) == .milliseconds(milliseconds))
        #expect(backoff.pause(after: failures, random: 0) == .milliseconds(milliseconds) / 2)
    }
}

import Testing
import Thumbcache

@testable import thumbcached_http

@Suite struct CachePolicyTests {
    struct Case: Sendable {
        let left: Int64?
        var isFresh = true
        let longest: Int64
        var signature: Int64?
        /// nil if each use requires a request.
        let expected: Int64?
    }

    @Test(arguments: [
        Case(left: 90, longest: 3_600, expected: 90), Case(left: 9_000, longest: 3_600, expected: 3_600),
        // An image that was PUT without a TTL.
        Case(left: nil, longest: 3_600, expected: 3_600),
        Case(left: 90, longest: 3_600, signature: 5, expected: 5), Case(left: 90, longest: 0, expected: nil),
        Case(left: nil, longest: 0, expected: nil), Case(left: 0, longest: 60, expected: nil),
        Case(left: -5, longest: 60, expected: nil), Case(left: 90, isFresh: false, longest: 60, expected: nil),
        Case(left: nil, isFresh: false, longest: 60, expected: nil),
        Case(left: 90, longest: 0, signature: 5, expected: nil),
    ])
    func `max-age is what is left of the freshness, within the limits`(row: Case) {
        let policy = CachePolicy(longest: row.longest, signatureLeft: row.signature)
        let status = ImageStatus.sample(timeToLive: row.left, state: row.isFresh ? .fresh : .stale)
        let value = policy.value(for: status)
        #expect(value == row.expected.map { "private, max-age=\($0), must-revalidate" } ?? "private, no-cache")
        #expect(value.hasPrefix("private"))
    }
}

import Testing
import Thumbcache

@testable import thumbcached_http

@Suite struct EntityTagsTests {
    private static let one = String(repeating: "1", count: 64)
    private static let two = String(repeating: "2", count: 64)

    @Test(
        arguments: [
            ([], .none), ([""], .none), (["*"], .any), ([" * "], .any), (["\"\(one)\""], .digests([one])),
            (["W/\"\(one)\""], .digests([one])), (["\"\(one)\", \"\(two)\""], .digests([one, two])),
            (["\"\(one)\"", "W/\"\(two)\" "], .digests([one, two])), (["\"other\", \"\(one)\""], .digests([one])),
            ([one], .none), (["\"\(one)"], .none),
            (["\"\(one.dropLast())g\""], .none), (["\"\(one)1\""], .none), (["\"\(one)\r\nX: y\""], .none),
            (["w/\"\(one)\""], .none),
        ] as [([String], EntityTags)])
    func `entity tags are digests`(fields: [String], expected: EntityTags) {
        #expect(EntityTags(fields) == expected)
    }

    @Test func `upper case is another entity tag`() {
        #expect(EntityTags(["\"\(String(repeating: "A", count: 64))\""]) == .none)
    }

    @Test func `the number of digests is limited`() {
        let many = (10..<60).map { "\"\(String(repeating: "0", count: 62))\($0)\"" }.joined(separator: ",")
        guard case .digests(let digests) = EntityTags([many]) else { Issue.record("no digests"); return }
        #expect(digests.count == EntityTags.most)
    }

    @Test func `a digest is compared with all tags`() {
        let tags = EntityTags(["\"\(Self.one)\", \"\(Self.two)\""])
        #expect(tags.contains(Self.one) && tags.contains(Self.two) && tags.first == Self.one)
        #expect(!tags.contains("3") && EntityTags.any.contains("3") && !EntityTags.none.contains(Self.one))
        #expect(EntityTags.any.first == nil)
    }
}

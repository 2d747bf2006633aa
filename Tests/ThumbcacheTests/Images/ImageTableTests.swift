import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

/// The fence as a table of sequences: events between a request and its reply determine whether the reply is stored and
/// returned.
@Suite struct ImageTableTests {
    private static let key = ImageTable.Key(user: "alice", profile: "bob", size: nil)

    private func image(
        _ text: String = "img", timeToLive: Duration? = .seconds(60), state: ImageStatus.State = .fresh
    ) -> ThumbcacheImage {
        ThumbcacheImage(
            bytes: ByteBuffer(string: text),
            status: ImageStatus(
                digest: "d", type: "image/png", length: text.utf8.count, width: 1, height: 1, age: .zero,
                timeToLive: timeToLive, state: state, source: .origin, epoch: 1, rendered: nil))
    }

    private func table(limit: Int = 1 << 20) -> ImageTable {
        var table = ImageTable(limit: limit)
        table.apply(.subscribed)
        return table
    }

    @Test(
        arguments: [
            ([], .current),
            ([.login(user: "alice", epoch: 2)], .current),
            ([.logout(user: "alice", epoch: 2)], .gone),
            ([.logout(user: "alice", epoch: 2), .login(user: "alice", epoch: 3)], .gone),
            ([.purge(user: "alice", profile: nil, epoch: 2)], .gone),
            ([.purge(user: "alice", profile: "bob", epoch: 2)], .gone),
            (
                [.purge(user: "alice", profile: "bob", epoch: 2), .update(user: "alice", profile: "bob", epoch: 2)],
                .gone
            ),
            ([.update(user: "alice", profile: "bob", epoch: 2)], .changed),
            ([.gap], .changed), ([.gap, .subscribed], .changed),
            ([.logout(user: "alice", epoch: 2), .gap, .subscribed], .gone),
            ([.logout(user: "carol", epoch: 2)], .current),
            ([.purge(user: "carol", profile: "bob", epoch: 2)], .current),
            ([.purge(user: "alice", profile: "carol", epoch: 2)], .current),
            ([.update(user: "alice", profile: "carol", epoch: 2)], .current),
            ([.update(user: "carol", profile: "bob", epoch: 2)], .current),
        ] as [([ThumbcacheEvent], ImageTable.Verdict)])
    func `I3: a reply is stored only if no event affected it since its request`(
        events: [ThumbcacheEvent], verdict: ImageTable.Verdict
    ) {
        // The reply arrives after the events.
        var table = table()
        let read = table.begin(Self.key)
        for event in events { table.apply(event) }
        #expect(table.end(read, with: image(), now: .zero) == verdict)
        #expect((table.image(Self.key, now: .zero) != nil) == (verdict == .current))

        // The reply arrives before the events: it is stored, and removed by them.
        var other = self.table()
        #expect(other.end(other.begin(Self.key), with: image(), now: .zero) == .current)
        for event in events { other.apply(event) }
        #expect((other.image(Self.key, now: .zero) != nil) == (verdict == .current))

        // The request is sent after the events: its reply is stored.
        if !events.contains(.gap) || events.last == .subscribed {
            #expect(table.end(table.begin(Self.key), with: image(), now: .zero) == .current)
            #expect(table.image(Self.key, now: .zero) != nil)
        }
    }

    @Test(arguments: [
        (ImageChange.all, ImageTable.Verdict.gone), (.of("alice"), .gone),
        (.gone("alice", profile: "bob"), .gone),
        (.updated("alice", profile: "bob"), .changed), (.of("carol"), .current),
    ])
    func `changes by this client have the effect of events`(change: ImageChange, verdict: ImageTable.Verdict) {
        var table = table()
        _ = table.end(table.begin(Self.key), with: image(), now: .zero)
        let late = table.begin(Self.key)
        table.apply(change)
        #expect((table.image(Self.key, now: .zero) != nil) == (verdict == .current))
        #expect(table.end(late, with: image(), now: .zero) == verdict)
    }

    @Test func `without a subscription, nothing is stored or served`() {
        var table = ImageTable(limit: 1 << 20)
        #expect(table.end(table.begin(Self.key), with: image(), now: .zero) == .changed)
        #expect(table.count == 0)
        // Requested before the subscription: an event may have been missed.
        let early = table.begin(Self.key)
        table.apply(.subscribed)
        #expect(table.end(early, with: image(), now: .zero) == .changed)
        #expect(table.image(Self.key, now: .zero) == nil)
        _ = table.end(table.begin(Self.key), with: image(), now: .zero)
        #expect(table.image(Self.key, now: .zero) != nil)
        table.apply(.gap)
        #expect(table.image(Self.key, now: .zero) == nil)
        table.apply(.subscribed)
        #expect(table.image(Self.key, now: .zero) == nil)
    }

    @Test func `a failed read stores nothing`() {
        var table = table()
        #expect(table.end(table.begin(Self.key), with: nil, now: .zero) == .current)
        #expect((table.count, table.bytes) == (0, 0))
    }

    @Test func `an image is served until it is stale`() {
        var table = table()
        _ = table.end(table.begin(Self.key), with: image(timeToLive: .seconds(60)), now: .seconds(100))
        #expect(table.image(Self.key, now: .seconds(159)) != nil)
        #expect(table.image(Self.key, now: .seconds(160)) == nil)
        #expect(table.count == 0)
        _ = table.end(table.begin(Self.key), with: image(timeToLive: nil), now: .zero)
        #expect(table.image(Self.key, now: .seconds(1 << 40)) != nil)
    }

    @Test(arguments: [(Duration.zero, ImageStatus.State.fresh), (.seconds(-1), .stale), (.seconds(60), .stale)])
    func `a stale image is not stored`(timeToLive: Duration, state: ImageStatus.State) {
        var table = table()
        _ = table.end(table.begin(Self.key), with: image(timeToLive: timeToLive, state: state), now: .zero)
        #expect(table.count == 0)
    }

    @Test func `a logout removes all sizes of all profiles of the user only`() {
        var table = table()
        for user in ["alice", "carol"] as [ThumbcacheID] {
            for (profile, size) in [("a", nil), ("a", 64), ("b", 64)] as [(ThumbcacheID, Int?)] {
                let key = ImageTable.Key(user: user, profile: profile, size: size.map { ImageSize($0) })
                _ = table.end(table.begin(key), with: image(), now: .zero)
            }
        }
        #expect(table.count == 6)
        table.apply(.update(user: "alice", profile: "a", epoch: 1))
        #expect(table.count == 4)
        table.apply(.logout(user: "alice", epoch: 2))
        #expect(table.count == 3)
        #expect(table.bytes == 3 * (3 + ImageStore.overhead))
        table.apply(.gap)
        #expect((table.count, table.bytes) == (0, 0))
    }

    @Test func `memory stays below the limit, and images that are read stay longest`() {
        let cost = 1_000 + ImageStore.overhead
        var table = table(limit: 10 * cost)
        func key(_ number: Int) -> ImageTable.Key { .init(user: "alice", profile: "\(number)", size: nil) }
        let small = image(String(repeating: "x", count: 1_000))
        for number in 0..<1_000 {
            _ = table.end(table.begin(key(number)), with: small, now: .zero)
            #expect(table.image(key(0), now: .zero) != nil)
            #expect(table.bytes <= 10 * cost)
        }
        #expect(table.count == 10)
        // Larger than a quarter of the limit.
        let large = image(String(repeating: "x", count: 10 * cost / 4 + 1))
        _ = table.end(table.begin(key(1_000)), with: large, now: .zero)
        #expect(table.image(key(1_000), now: .zero) == nil)
        #expect(table.count == 10)
    }

    @Test func `a replaced image is counted once`() {
        var table = table()
        for _ in 0..<1_000 { _ = table.end(table.begin(Self.key), with: image(), now: .zero) }
        #expect((table.count, table.bytes) == (1, 3 + ImageStore.overhead))
    }
}

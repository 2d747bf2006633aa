import Fleet
import Testing

@testable import thumbcached_relay

/// Conditions under which a publisher reports that all hosts have executed an entry.
@Suite struct CompletionTests {
    private static let now: Int64 = 1_000_000
    private static let entry = StreamID(milliseconds: 900_000, sequence: 0)
    private static let name = FakeStream.name(100_000)

    private static let done = HostState(id: entry, time: now, streamIdentity: name, skipped: 0, process: "p")
    private static let owing = HostState(id: .zero, time: now, streamIdentity: name, skipped: 0, process: "p")

    private static func seen(_ seconds: Int64, _ state: HostState) -> HostState {
        var state = state
        (state.time, state.seen) = (now - seconds * 1_000, now - seconds * 1_000)
        return state
    }

    private func judge(
        _ hosts: [HostState], streamIdentity: String? = name, liveOnly: Bool = false, window: Int = 30
    ) -> String {
        let rows = hosts.enumerated().map { (host: "web-\($0 + 1)", state: $1) }
        let table = HostTable(streamIdentity: streamIdentity, time: Self.now, states: rows)
        let fleet = FleetView(table, publishedAt: 900_000)
        return switch Completion(fleet, Self.entry, window: window, liveOnly: liveOnly) {
        case .done: "done"
        case .pending(let reason): "pending: \(reason)"
        case .away(let reason): "away: \(reason)"
        }
    }

    @Test func `done if all hosts have executed the entry`() {
        #expect(judge([Self.done, Self.done]) == "done")
        #expect(judge([Self.done, Self.seen(60, Self.done)]) == "done")
    }

    @Test func `pending while a live host has not executed the entry`() {
        #expect(judge([Self.done, Self.owing]) == "pending: web-2: pending")
        #expect(judge([Self.done, Self.owing], liveOnly: true) == "pending: web-2: pending")
    }

    /// The position is old, but the host was seen recently.
    @Test func `a busy host is not away`() {
        var busy = Self.seen(600, Self.owing)
        busy.seen = Self.now - 1_000
        #expect(judge([Self.done, busy], liveOnly: true) == "pending: web-2: pending")
        // An acknowledgement from before the publication does not count.
        busy.id = Self.entry
        #expect(judge([Self.done, busy]) == "pending: web-2: pending")
    }

    @Test func `a host that is away counts unless only live hosts are considered`() {
        let hosts = [Self.done, Self.seen(31, Self.owing)]
        #expect(judge(hosts).hasPrefix("away: web-2: not seen for 30 seconds and not done; remove a host"))
        #expect(judge(hosts, liveOnly: true) == "done")
        #expect(judge([Self.seen(31, Self.owing)], liveOnly: true).hasPrefix("pending: no live host"))
    }

    @Test func `pending if the table is empty`() {
        for liveOnly in [false, true] { #expect(judge([], liveOnly: liveOnly).hasPrefix("pending: no ")) }
    }

    @Test func `an invalid row counts as a host that has not executed the entry`() {
        var (far, late) = (Self.done, Self.done)
        far.id = .last
        (late.time, late.seen) = (.max, .max)
        for state in [HostState.unknown, far, late] { #expect(judge([Self.done, state]).hasPrefix("away: web-2")) }
    }

    @Test(arguments: [Int64.min, -1, 0, .max]) func `a time out of range does not trap`(_ time: Int64) {
        var state = Self.done
        (state.time, state.seen) = (time, time)
        let fleet = FleetView(
            HostTable(streamIdentity: Self.name, time: Self.now, states: [("web-1", state)]), publishedAt: 0)
        #expect(!FleetTable(fleet.hosts, live: 30) { _ in "live" }.text.isEmpty)
        #expect(!fleet.hosts[0].isLive(within: 30))
    }

    @Test(arguments: [(29, "pending"), (30, "pending"), (31, "done")])
    func `with a recent stream identity, hosts may be missing from the table`(
        _ seconds: UInt64, _ outcome: String
    ) {
        let name = FakeStream.name(UInt64(Self.now) - seconds * 1_000)
        var done = Self.done
        done.streamIdentity = name
        for liveOnly in [false, true] {
            #expect(judge([done], streamIdentity: name, liveOnly: liveOnly).hasPrefix(outcome), "\(seconds)")
        }
    }

    @Test func `pending without a stream identity, or with one from the future`() {
        let future = FakeStream.name(UInt64(Self.now) + 60_000)
        var done = Self.done
        done.streamIdentity = future
        #expect(judge([done], streamIdentity: future).hasPrefix("pending: the stream"))
        #expect(judge([Self.done], streamIdentity: nil).hasPrefix("pending: web-1"))
    }

    @Test func `the list of hosts is shortened`() {
        let hosts = Array(repeating: Self.owing, count: 7)
        #expect(judge(hosts) == "pending: web-1, web-2, web-3, web-4, web-5 and 2 more: pending")
    }

    @Test func `the error for a full stream contains the repair command`() {
        let publication = Publication(stream: "fleet", id: .last, time: Self.now, replicas: 1, needed: 1)
        #expect(publication.loss?.contains("redis-cli DEL fleet") == true)
        let usual = Publication(stream: "fleet", id: Self.entry, time: Self.now, replicas: 1, needed: 1)
        #expect(usual.loss == nil)
    }
}

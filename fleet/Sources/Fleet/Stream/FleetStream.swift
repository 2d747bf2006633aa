import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// The stream and the two keys beside it, on a connection: what fleet/docs/fleet.md says of them.
package struct FleetStream: Sendable {
    package let connection: RedisConnection
    package let name: String

    package init(connection: RedisConnection, name: String) { (self.connection, self.name) = (connection, name) }

    /// A hash: each host's position and when it had that.
    private var hosts: String { "\(name):hosts" }
    /// A string: ``StreamSnapshot/streamIdentity``.
    private var streamIdentity: String { "\(name):incarnation" }

    /// Entries that one look takes.
    package static let mostEntries = 100

    /// All that is known of it at one moment, and the next entries behind a position.
    package func look(behind position: StreamID) async throws(RedisError) -> StreamSnapshot {
        let transaction = try await connection.call(together: [
            ["MULTI"], ["GET", streamIdentity], ["XINFO", "STREAM", name],
            ["XRANGE", name, "\(position)", "\(position)"],
            ["XRANGE", name, "(\(position)", "+", "COUNT", "\(Self.mostEntries)"], ["TIME"], ["EXEC"],
        ])
        let replies = transaction.last?.elements ?? []
        guard replies.count == 5 else { throw RedisError("EXEC was not answered by what was asked for") }
        var look = StreamSnapshot(streamIdentity: replies[0].text, stream: nil, time: try Self.milliseconds(replies[4]))
        switch replies[1] {
        case .error(_, "no such key"): break
        case .error(let code, let message): throw RedisError("XINFO STREAM \(name): \(oneLine("\(code) \(message)"))")
        default: look.stream = try stream(replies[1], position: replies[2], entries: replies[3])
        }
        return look
    }

    private func stream(_ info: Value, position: Value, entries: Value) throws(RedisError) -> StreamSnapshot.Stream {
        func id(_ value: Value?) throws(RedisError) -> StreamID? {
            guard let value, !value.isNull else { return nil }
            guard let id = (value.elements?.first ?? value).text.flatMap({ StreamID($0) }) else {
                throw RedisError("XINFO STREAM \(name) has an id that is none")
            }
            return id
        }
        guard let last = try id(info["last-generated-id"]), let count = info["length"]?.number else {
            throw RedisError("XINFO STREAM \(name) lacks what was looked for in it")
        }
        guard let added = info["entries-added"]?.number else {
            throw RedisError("the server does not count a stream's entries: Redis 7 or later is needed, or Valkey")
        }
        guard let lastDeleted = try id(info["max-deleted-entry-id"]) else {
            throw RedisError("the server does not record deleted ids: Redis 7 or later is needed, or Valkey")
        }
        guard let found = position.elements, let next = entries.elements else {
            throw RedisError("XRANGE \(name) was not answered by entries")
        }
        var stream = StreamSnapshot.Stream(
            lastID: last, firstID: try id(info["first-entry"]), lastEntryID: try id(info["last-entry"]),
            lastDeletedID: lastDeleted, added: added, count: count, hasPosition: !found.isEmpty)
        for value in next {
            guard let entry = StreamEntry(value) else { throw RedisError("XRANGE \(name) has an entry that is none") }
            stream.entries.append(entry)
        }
        return stream
    }

    /// Gives the stream a name, unless it has got another one since a look.
    /// - Parameter old: what it was called at the look.
    package func nameStream(_ name: String, insteadOf old: String?) async throws(RedisError) {
        // Of several relays that see the same one is first, and the others follow it.
        try await connection.call("WATCH", streamIdentity)
        let current = try await connection.call("GET", streamIdentity).text
        // Something else than a name of ours would be read as none for ever.
        if let current, !StreamIdentity.isOne(current) {
            throw RedisError(
                "\(streamIdentity) is not a name that relays write; remove it with: redis-cli DEL \(streamIdentity)")
        }
        try await connection.call("MULTI")
        if current == old { try await connection.call("SET", streamIdentity, name) }
        try await connection.call("EXEC")
    }

    /// Returns when there is an entry behind a position, or after some time.
    package func wait(behind position: StreamID, _ time: Duration) async throws(RedisError) {
        let milliseconds = "\(time.components.seconds * 1_000 + time.components.attoseconds / 1_000_000_000_000_000)"
        try await connection.call(
            "XREAD", "COUNT", "1", "BLOCK", milliseconds, "STREAMS", name, "\(position)", extra: time)
    }

    /// Writes a host's row again while the host is busy: the same position, and the server's present time as the time at
    /// which the host was seen. The time of the position stays: a stream that lost its end may give the id anew.
    package func showBusy(host: String, _ state: HostState) async throws(RedisError) {
        var state = state
        state.seen = try Self.milliseconds(try await connection.call("TIME"))
        try await connection.call("HSET", hosts, host, state.text)
    }

    /// Says how far a host has come. Returns what was said of it before.
    package func acknowledge(host: String, _ state: HostState) async throws(RedisError) -> HostState? {
        let replies = try await connection.call(together: [["HGET", hosts, host], ["HSET", hosts, host, state.text]])
        return replies.first?.text.flatMap { HostState($0) }
    }

    /// The table of hosts, with the stream's name and the server's time at the same moment. A table that was read apart
    /// from the name could lack the hosts that a FLUSHALL removed in between.
    package func hostTable() async throws(RedisError) -> HostTable {
        let transaction = try await connection.call(together: [
            ["MULTI"], ["GET", streamIdentity], ["TIME"], ["HGETALL", hosts], ["EXEC"],
        ])
        let replies = transaction.last?.elements ?? []
        guard replies.count == 3 else { throw RedisError("EXEC was not answered by what was asked for") }
        guard let entries = replies[2].entries else {
            throw RedisError("\(hosts) is not the hash that relays write; remove it with: redis-cli DEL \(hosts)")
        }
        let states = entries.map { ($0.key.text ?? "?", $0.value.text.flatMap { HostState($0) } ?? .unknown) }
        return HostTable(
            streamIdentity: replies[0].text, time: try Self.milliseconds(replies[1]),
            states: states.sorted { $0.0 < $1.0 })
    }

    package func forget(host: String) async throws(RedisError) -> Bool {
        try await connection.call("HDEL", hosts, host).number == 1
    }

    /// Adds an order.
    /// - Parameter keep: milliseconds for which entries are kept, about.
    package func publish(_ order: FleetCommand, keep: Int64) async throws(RedisError) -> (id: StreamID, time: Int64) {
        let time = try Self.milliseconds(try await connection.call("TIME"))
        let oldest = max(0, time.saturatingSubtract(keep))
        let words = ["XADD", name, "MINID", "~", "\(oldest)", "*"].map(ByteBuffer.init(string:))
        let reply: Value
        do throws(RedisError) {
            reply = try await connection.call(words + FleetEntry.words(order))
        } catch  where error.description.contains("last possible ID") {
            throw RedisError(
                StreamDamage.sentence(name, "its last id is the greatest there is, so nothing can be added"))
        }
        guard let id = reply.text.flatMap({ StreamID($0) }) else {
            throw RedisError("XADD \(name) was not answered by an id")
        }
        return (id, time)
    }

    /// Adds an order, and waits for replicas to have it.
    /// - Parameters:
    ///   - keep: milliseconds for which entries are kept, about.
    ///   - replicas: how many are to have it; nil for one, where the server has any.
    ///   - time: how long they may take.
    package func publish(
        _ order: FleetCommand, keep: Int64, replicas: Int?, within time: Duration
    ) async throws(RedisError) -> Publication {
        let hasReplicas = try await self.replicas() > 0
        let needed = replicas ?? (hasReplicas ? 1 : 0)
        let (id, moment) = try await publish(order, keep: keep)
        let have = needed > 0 ? try await waitForReplicas(needed, time) : 0
        return Publication(stream: name, id: id, time: moment, replicas: have, needed: needed)
    }

    /// How many replicas the server has.
    package func replicas() async throws(RedisError) -> Int {
        let role = try await connection.call("ROLE").elements ?? []
        return role.count > 2 ? role[2].elements?.count ?? 0 : 0
    }

    /// How many replicas have all that was written on this connection, when so many have or the time is over.
    package func waitForReplicas(_ count: Int, _ time: Duration) async throws(RedisError) -> Int {
        // 0 would be for ever.
        let milliseconds = max(1, time.components.seconds * 1_000)
        return try await connection.call("WAIT", "\(count)", "\(milliseconds)", extra: time).number ?? 0
    }

    /// Entries behind a position, counted up to one more than ``mostLag``.
    package func lag(behind position: StreamID) async throws(RedisError) -> Int {
        // The server rejects a range that begins after the greatest id.
        guard position < .last else { return 0 }
        let range = try await connection.call("XRANGE", name, "(\(position)", "+", "COUNT", "\(Self.mostLag + 1)")
        guard let entries = range.elements else { throw RedisError("XRANGE \(name) was not answered by entries") }
        return entries.count
    }

    package static let mostLag = 1_000

    /// What TIME answers: seconds and microseconds.
    package static func milliseconds(_ time: Value) throws(RedisError) -> Int64 {
        let parts = (time.elements ?? []).compactMap { $0.text.flatMap { Int64($0) } }
        guard parts.count == 2, parts[0] >= 0, 0..<1_000_000 ~= parts[1] else {
            throw RedisError("TIME was not answered by a time")
        }
        return parts[0].saturatingMultiply(1_000).saturatingAdd(parts[1] / 1_000)
    }
}

/// The table of hosts at one moment.
package struct HostTable: Sendable {
    /// The stream's name; nil for none.
    package let streamIdentity: String?
    /// Milliseconds since 1970, by the server's clock.
    package let time: Int64
    /// By name; also hosts that are gone for good.
    package let states: [(host: String, state: HostState)]

    package init(streamIdentity: String?, time: Int64, states: [(host: String, state: HostState)]) {
        (self.streamIdentity, self.time, self.states) = (streamIdentity, time, states)
    }
}

/// An order that is in the stream.
package struct Publication: Equatable, Sendable {
    package let stream: String
    package let id: StreamID
    /// Milliseconds since 1970, by the server's clock, from just before.
    package let time: Int64
    /// How many replicas have it, and how many should.
    package let replicas: Int
    package let needed: Int

    package init(stream: String, id: StreamID, time: Int64, replicas: Int, needed: Int) {
        (self.stream, self.id, self.time) = (stream, id, time)
        (self.replicas, self.needed) = (replicas, needed)
    }

    /// Why relays may never read the entry; nil where nothing is wrong.
    package var loss: String? {
        if !StreamDamage.isPossible(id.milliseconds, at: time) {
            return StreamDamage.sentence(stream, "the id \(id) is more than a day ahead of the server's clock")
        }
        return replicas >= needed
            ? nil
            : "published as \(id), but \(replicas) of \(needed) replicas have it: it may be lost with the master; "
                + "publish it again"
    }
}

/// How far a host has come, as it stands in the hash.
package struct HostState: Equatable, Sendable {
    /// Up to there all is done; ``StreamID/zero`` while the host has to make up for what it may have missed.
    package var id: StreamID
    /// Of the look after which it was so: milliseconds since 1970, by the server's clock.
    package var time: Int64
    package var streamIdentity: String
    /// Entries that were no orders, since the relay was started.
    package var skipped: Int
    /// Of the relay's process: two that call themselves by one name would each hide what the other owes.
    package var process: String
    /// When the host was seen last, by the server's clock: later than ``time`` while the host is busy.
    package var seen: Int64

    /// A row that cannot be read. The host is there, and has done nothing that is known.
    package static let unknown = HostState(id: .zero, time: 0, streamIdentity: "-", skipped: 0, process: "-")

    package var text: String {
        "\(id) \(time) \(streamIdentity) \(skipped) \(process)" + (seen == time ? "" : " \(seen)")
    }

    package init(
        id: StreamID, time: Int64, streamIdentity: String, skipped: Int, process: String, seen: Int64? = nil
    ) {
        (self.id, self.time, self.streamIdentity, self.skipped) = (id, time, streamIdentity, skipped)
        (self.process, self.seen) = (process, seen ?? time)
    }

    package init?(_ text: String) {
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        guard words.count >= 5, let id = StreamID(words[0]), let time = Int64(words[1]), let skipped = Int(words[3])
        else { return nil }
        self.init(
            id: id, time: time, streamIdentity: String(words[2]), skipped: skipped, process: String(words[4]),
            seen: words.count > 5 ? Int64(words[5]) : nil)
    }

    /// Whether a host that says this has done an entry.
    ///
    /// Said before the entry was there it says nothing of it, whatever the id: a stream that lost its end gives ids
    /// anew.
    package func hasDone(_ entry: StreamID, publishedAt published: Int64, in streamIdentity: String?) -> Bool {
        id >= entry && time >= published && self.streamIdentity == streamIdentity
    }
}

import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// The stream and its two other keys on a server; fleet/docs/fleet.md specifies them.
package struct FleetStream: Sendable {
    package let connection: RedisConnection
    package let name: String

    package init(connection: RedisConnection, name: String) { (self.connection, self.name) = (connection, name) }

    /// A hash of host names to ``HostState/text``.
    private var hosts: String { "\(name):hosts" }
    /// A string: ``StreamSnapshot/streamIdentity``.
    private var streamIdentity: String { "\(name):incarnation" }

    /// Maximum entries of one snapshot.
    package static let mostEntries = 100

    /// Reads the stream's state, the next entries after a position, and a host's row in one transaction.
    package func snapshot(after position: StreamID, host: String) async throws(RedisError) -> StreamSnapshot {
        let transaction = try await connection.pipeline([
            ["MULTI"], ["GET", streamIdentity], ["XINFO", "STREAM", name],
            ["XRANGE", name, "\(position)", "\(position)"],
            ["XRANGE", name, "(\(position)", "+", "COUNT", "\(Self.mostEntries)"], ["HGET", hosts, host], ["TIME"],
            ["EXEC"],
        ])
        return try StreamSnapshot(transaction.last?.elements ?? [], of: name)
    }

    /// Sets the stream's identity, unless it has changed since a snapshot.
    /// - Parameter old: the identity in the snapshot.
    package func nameStream(_ name: String, insteadOf old: String?) async throws(RedisError) {
        // WATCH lets only the first of several relays succeed.
        try await connection.send("WATCH", streamIdentity)
        let current = try await connection.send("GET", streamIdentity).text
        // An invalid value would otherwise be rejected in every snapshot, forever.
        if let current, !StreamIdentity.isOne(current) {
            throw RedisError(
                "\(streamIdentity) is not a valid identity; remove it with: redis-cli DEL \(streamIdentity)")
        }
        try await connection.send("MULTI")
        if current == old { try await connection.send("SET", streamIdentity, name) }
        try await connection.send("EXEC")
    }

    /// Waits for an entry after a position, at most for `time`.
    package func wait(after position: StreamID, _ time: Duration) async throws(RedisError) {
        let milliseconds = "\(time.components.seconds * 1_000 + time.components.attoseconds / 1_000_000_000_000_000)"
        try await connection.send(
            "XREAD", "COUNT", "1", "BLOCK", milliseconds, "STREAMS", name, "\(position)", extra: time)
    }

    /// Writes a host's row again while the host is busy, with the server's current time as its last heartbeat. The time
    /// of the position stays unchanged: a stream that lost its end may assign the same id again.
    package func reportBusy(host: String, _ state: HostState) async throws(RedisError) {
        var state = state
        state.seen = try Self.milliseconds(try await connection.send("TIME"))
        try await connection.send("HSET", hosts, host, state.text)
    }

    /// Writes a host's row.
    package func acknowledge(host: String, _ state: HostState) async throws(RedisError) {
        try await connection.send("HSET", hosts, host, state.text)
    }

    /// Reads the table of hosts, the stream's identity and the server's time in one transaction. Read separately, the
    /// table could lack hosts that a FLUSHALL removed in between.
    package func hostTable() async throws(RedisError) -> HostTable {
        let transaction = try await connection.pipeline([
            ["MULTI"], ["GET", streamIdentity], ["TIME"], ["HGETALL", hosts], ["EXEC"],
        ])
        return try HostTable(transaction.last?.elements ?? [], of: hosts)
    }

    package func forget(host: String) async throws(RedisError) -> Bool {
        try await connection.send("HDEL", hosts, host).number == 1
    }

    /// Adds an entry.
    /// - Parameter keep: approximate retention of entries, in milliseconds.
    package func publish(_ command: FleetCommand, keep: Int64) async throws(RedisError) -> (id: StreamID, time: Int64) {
        let time = try Self.milliseconds(try await connection.send("TIME"))
        let oldest = max(0, time.saturatingSubtract(keep))
        let words = ["XADD", name, "MINID", "~", "\(oldest)", "*"].map(ByteBuffer.init(string:))
        let reply: Value
        do throws(RedisError) {
            reply = try await connection.send(words + FleetEntry.words(command))
        } catch  where error.description.contains("last possible ID") {
            throw RedisError(
                StreamDamage.sentence(name, "its last id is the greatest possible one, so XADD fails"))
        }
        guard let id = reply.text.flatMap({ StreamID($0) }) else {
            throw RedisError("XADD \(name) returned no id")
        }
        return (id, time)
    }

    /// Adds an entry and waits for replicas to receive it.
    /// - Parameters:
    ///   - keep: approximate retention of entries, in milliseconds.
    ///   - replicas: how many must have the entry; nil for one if the server has any.
    ///   - time: limit of the wait for replicas.
    package func publish(
        _ command: FleetCommand, keep: Int64, replicas: Int?, within time: Duration
    ) async throws(RedisError) -> Publication {
        let hasReplicas = try await self.replicas() > 0
        let needed = replicas ?? (hasReplicas ? 1 : 0)
        let (id, moment) = try await publish(command, keep: keep)
        let have = needed > 0 ? try await waitForReplicas(needed, time) : 0
        return Publication(stream: name, id: id, time: moment, replicas: have, needed: needed)
    }

    /// The number of the server's replicas.
    package func replicas() async throws(RedisError) -> Int {
        let role = try await connection.send("ROLE").elements ?? []
        return role.count > 2 ? role[2].elements?.count ?? 0 : 0
    }

    /// Waits until `count` replicas have all writes of this connection. Returns how many have them.
    package func waitForReplicas(_ count: Int, _ time: Duration) async throws(RedisError) -> Int {
        // 0 would wait forever.
        let milliseconds = max(1, time.components.seconds * 1_000)
        return try await connection.send("WAIT", "\(count)", "\(milliseconds)", extra: time).number ?? 0
    }

    /// Counts the entries after a position, up to ``mostLag`` + 1.
    package func lag(after position: StreamID) async throws(RedisError) -> Int {
        // The server rejects a range that begins after the greatest id.
        guard position < .last else { return 0 }
        let range = try await connection.send("XRANGE", name, "(\(position)", "+", "COUNT", "\(Self.mostLag + 1)")
        guard let entries = range.elements else { throw RedisError("XRANGE \(name) returned an unexpected reply") }
        return entries.count
    }

    package static let mostLag = 1_000

    /// Parses a reply to TIME: seconds and microseconds.
    package static func milliseconds(_ time: Value) throws(RedisError) -> Int64 {
        let parts = (time.elements ?? []).compactMap { $0.text.flatMap { Int64($0) } }
        guard parts.count == 2, parts[0] >= 0, 0..<1_000_000 ~= parts[1] else {
            throw RedisError("unexpected reply to TIME")
        }
        return parts[0].saturatingMultiply(1_000).saturatingAdd(parts[1] / 1_000)
    }
}

extension StreamSnapshot {
    /// Parses the replies of the transaction that ``FleetStream/snapshot(after:host:)`` sends.
    package init(_ replies: [Value], of name: String) throws(RedisError) {
        guard replies.count == 6 else { throw RedisError("unexpected reply to EXEC") }
        self.init(
            streamIdentity: replies[0].text, stream: nil, row: replies[4].text.flatMap { HostState($0) },
            time: try FleetStream.milliseconds(replies[5]))
        switch replies[1] {
        case .error(_, "no such key"): break
        case .error(let code, let message): throw RedisError("XINFO STREAM \(name): \(oneLine("\(code) \(message)"))")
        default: stream = try Stream(replies[1], position: replies[2], entries: replies[3], of: name)
        }
    }
}

extension StreamSnapshot.Stream {
    fileprivate init(_ info: Value, position: Value, entries: Value, of name: String) throws(RedisError) {
        func id(_ value: Value?) throws(RedisError) -> StreamID? {
            guard let value, !value.isNull else { return nil }
            guard let id = (value.elements?.first ?? value).text.flatMap({ StreamID($0) }) else {
                throw RedisError("XINFO STREAM \(name) has an invalid id")
            }
            return id
        }
        guard let last = try id(info["last-generated-id"]), let count = info["length"]?.number else {
            throw RedisError("XINFO STREAM \(name) lacks last-generated-id or length")
        }
        guard let added = info["entries-added"]?.number else {
            throw RedisError("the server does not count a stream's entries: Redis 7 or later is needed, or Valkey")
        }
        guard let lastDeleted = try id(info["max-deleted-entry-id"]) else {
            throw RedisError("the server does not record deleted ids: Redis 7 or later is needed, or Valkey")
        }
        guard let found = position.elements, let next = entries.elements else {
            throw RedisError("XRANGE \(name) returned an unexpected reply")
        }
        self.init(
            lastID: last, firstID: try id(info["first-entry"]), lastEntryID: try id(info["last-entry"]),
            lastDeletedID: lastDeleted, added: added, count: count, hasPosition: !found.isEmpty)
        for value in next {
            guard let entry = StreamEntry(value) else { throw RedisError("XRANGE \(name) has a malformed entry") }
            self.entries.append(entry)
        }
    }
}

/// The table of hosts at one moment.
package struct HostTable: Sendable {
    /// The stream's identity, if set.
    package let streamIdentity: String?
    /// Milliseconds since 1970, by the server's clock.
    package let time: Int64
    /// Sorted by name. Includes hosts that are away.
    package let states: [(host: String, state: HostState)]

    package init(streamIdentity: String?, time: Int64, states: [(host: String, state: HostState)]) {
        (self.streamIdentity, self.time, self.states) = (streamIdentity, time, states)
    }

    /// Parses the replies of the transaction that ``FleetStream/hostTable()`` sends.
    /// - Parameter hosts: the key of the table.
    package init(_ replies: [Value], of hosts: String) throws(RedisError) {
        guard replies.count == 3 else { throw RedisError("unexpected reply to EXEC") }
        guard let entries = replies[2].entries else {
            throw RedisError("\(hosts) is not a hash; remove it with: redis-cli DEL \(hosts)")
        }
        let states = entries.map { ($0.key.text ?? "?", $0.value.text.flatMap { HostState($0) } ?? .unknown) }
        self.init(
            streamIdentity: replies[0].text, time: try FleetStream.milliseconds(replies[1]),
            states: states.sorted { $0.0 < $1.0 })
    }
}

/// A published entry.
package struct Publication: Equatable, Sendable {
    package let stream: String
    package let id: StreamID
    /// Milliseconds since 1970, by the server's clock, read before XADD.
    package let time: Int64
    /// Replicas that have the entry, and the number required.
    package let replicas: Int
    package let needed: Int

    package init(stream: String, id: StreamID, time: Int64, replicas: Int, needed: Int) {
        (self.stream, self.id, self.time) = (stream, id, time)
        (self.replicas, self.needed) = (replicas, needed)
    }

    /// Why relays may never read the entry, or nil.
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

/// A host's row in the table of hosts.
package struct HostState: Equatable, Sendable {
    /// All entries up to this one are processed; ``StreamID/zero`` during a gap.
    package var id: StreamID
    /// Time of the snapshot: milliseconds since 1970, by the server's clock.
    package var time: Int64
    package var streamIdentity: String
    /// Invalid entries since the relay started.
    package var skipped: Int
    /// Identifies the relay's process, to detect two relays with one host name.
    package var process: String
    /// Last heartbeat, by the server's clock: later than ``time`` while the host is busy.
    package var seen: Int64

    /// Stands for an invalid row: the host exists, its progress is unknown.
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

    /// Whether the host has processed an entry.
    ///
    /// A row older than the entry proves nothing: a stream that lost its end assigns the same ids again.
    package func hasProcessed(_ entry: StreamID, publishedAt published: Int64, in streamIdentity: String?) -> Bool {
        id >= entry && time >= published && self.streamIdentity == streamIdentity
    }
}

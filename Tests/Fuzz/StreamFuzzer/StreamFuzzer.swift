import Fleet
import NIOCore
import ThumbcacheProtocol

@testable import thumbcached_relay

/// Replies of a Redis server to relays. Nothing may trap; each position that a relay saves can be read again, each
/// identity that it sets is valid, and each command that it accepts can be published again.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    var buffer = ByteBuffer(bytes: UnsafeRawBufferPointer(start: start, count: count))
    do throws(ProtocolError) {
        while let reply = try buffer.readReply(limit: 1 << 20) { read(reply.elements ?? []) }
    } catch {
        check(!error.message.isEmpty, "a reply is rejected without a reason")
    }
    return 0
}

private func read(_ replies: [Value]) {
    if let table = try? HostTable(replies, of: "s:hosts") {
        for (_, state) in table.states { check(HostState(state.text) == state, "a host's row changes") }
    }
    guard let snapshot = try? StreamSnapshot(replies, of: "s") else { return }
    if let damage = snapshot.damage { check(!damage.sentence("s").isEmpty, "damage has no description") }
    for entry in snapshot.stream?.entries ?? [] {
        guard case .success(let command) = entry.command else { continue }
        do throws(EntryError) { try FleetEntry.check(command) } catch { fatalError("an accepted command \(error)") }
    }
    for policy in GapPolicy.allCases {
        var saved: Position?
        for _ in 0..<3 {
            switch Decision(saved, snapshot, policy) {
            case .closeGap(_, let next), .execute(_, let next):
                check(Position(text: next.text) == next, "a saved position is invalid")
                saved = next
            case .nameStream(let after, _):
                let name = StreamIdentity.name(after: after, now: snapshot.time, random: Array(repeating: 0, count: 8))
                check(StreamIdentity.isOne(name), "a new identity is invalid")
            case .wait, .reject: break
            }
        }
    }
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}

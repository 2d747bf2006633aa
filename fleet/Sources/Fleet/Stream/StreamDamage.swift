import LinuxSupport

/// A state of the stream that relays cannot follow.
///
/// Redis assigns only ids that are greater than the last one. So an entry with an id far in the future determines all
/// later ids, and after the greatest possible id every `XADD` fails. Every publisher can add such an entry.
package struct StreamDamage: Equatable, Sendable {
    package enum Reason: Equatable, Sendable {
        case idAhead(StreamID)
        case impossibleCounts
    }

    package let reason: Reason
    /// Both change with each entry that is added.
    package let lastID: StreamID
    package let added: Int

    /// Milliseconds by which an id or an identity may be ahead of the server's clock. The clocks of a master and its
    /// replicas differ by less.
    package static let margin: UInt64 = 86_400_000

    /// Whether a server whose clock shows `time` can have assigned `moment`; both in milliseconds since 1970.
    package static func isPossible(_ moment: UInt64, at time: Int64) -> Bool {
        moment <= UInt64(max(0, time)).saturatingAdd(margin)
    }

    /// The damage and its repair, as a message for the administrator.
    package func sentence(_ stream: String) -> String {
        let cause =
            switch reason {
            case .idAhead(let id): "the id \(id) is more than a day ahead of the server's clock"
            case .impossibleCounts: "entries-added is \(added), which is impossible"
            }
        return Self.sentence(stream, cause)
    }

    static func sentence(_ stream: String, _ cause: String) -> String {
        "the stream \(stream) is damaged: \(cause); correct the server's clock if it is wrong, otherwise remove the "
            + "stream with: redis-cli DEL \(stream) (every host then applies its on-gap)"
    }
}

extension StreamSnapshot {
    /// Nil if relays can follow the stream.
    package var damage: StreamDamage? {
        guard let stream else { return nil }
        let id = max(stream.lastID, stream.lastDeletedID)
        let reason: StreamDamage.Reason
        if !StreamDamage.isPossible(id.milliseconds, at: time) {
            reason = .idAhead(id)
        } else if stream.count < 0 || stream.added < stream.count {
            reason = .impossibleCounts
        } else {
            return nil
        }
        return StreamDamage(reason: reason, lastID: stream.lastID, added: stream.added)
    }
}

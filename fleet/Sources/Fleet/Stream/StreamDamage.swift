import LinuxSupport

/// A state of the stream that relays cannot follow.
///
/// Redis only gives ids that are greater than the last one. An entry whose id lies far in the future therefore decides
/// all later ids, and the greatest id there is ends the stream: `XADD` fails from then on. Every publisher can add such
/// an entry.
package struct StreamDamage: Equatable, Sendable {
    package enum Reason: Equatable, Sendable {
        case idAhead(StreamID)
        case impossibleCounts
    }

    package let reason: Reason
    /// Both change with each entry that is added.
    package let lastID: StreamID
    package let added: Int

    /// Milliseconds by which an id or a name may be ahead of the server's clock. Clocks of servers that replace each other
    /// differ by less.
    package static let margin: UInt64 = 86_400_000

    /// Whether a moment can have been given by a server whose clock shows `time`; both in milliseconds since 1970.
    package static func isPossible(_ moment: UInt64, at time: Int64) -> Bool {
        moment <= UInt64(max(0, time)).saturatingAdd(margin)
    }

    /// What is wrong with a stream, and how an administrator repairs it.
    package func sentence(_ stream: String) -> String {
        let cause =
            switch reason {
            case .idAhead(let id): "the id \(id) is more than a day ahead of the server's clock"
            case .impossibleCounts: "the server counts \(added) entries that were ever added, which is impossible"
            }
        return Self.sentence(stream, cause)
    }

    static func sentence(_ stream: String, _ cause: String) -> String {
        "the stream \(stream) is damaged: \(cause); correct the server's clock if it is wrong, otherwise remove the "
            + "stream with: redis-cli DEL \(stream) (every host then does what its on-gap says)"
    }
}

extension StreamSnapshot {
    /// Nil where the stream can be followed.
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

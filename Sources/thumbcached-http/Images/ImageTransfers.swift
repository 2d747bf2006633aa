import NIOConcurrencyHelpers
import Thumbcache

/// The images that are being requested or sent: bounds their memory, and ends those of a user who is logged out.
///
/// The daemon decides whether a request gets an image. A reply that it sent before a logout may still be on its way to
/// this program, and from here to a slow browser; the event of the logout ends it.
final class ImageTransfers: Sendable {
    private struct Entry {
        let user: ThumbcacheID
        let profile: ThumbcacheID
        var bytes = 0
        /// The outcome of the request if the transfer was revoked.
        var revocation: ImageOutcome?
        var close: (@Sendable () -> Void)?
    }

    private struct State {
        var last: UInt64 = 0
        var entries: [UInt64: Entry] = [:]
        var bytes = 0
    }

    private let limit: Int
    private let state = NIOLockedValueBox(State())

    /// - Parameter limit: bytes of all images that are being sent.
    init(limit: Int) { self.limit = limit }

    /// One image. It ends with the last reference.
    final class Transfer: Sendable {
        private let transfers: ImageTransfers
        private let id: UInt64

        fileprivate init(_ transfers: ImageTransfers, _ id: UInt64) { (self.transfers, self.id) = (transfers, id) }

        deinit { transfers.end(id) }

        /// The outcome of the request if, since the transfer began, the user was logged out, the image was purged, or
        /// events may have been lost; otherwise nil.
        var revocation: ImageOutcome? { transfers.state.withLockedValue { $0.entries[id]?.revocation } }

        /// Returns false if too little memory is left.
        func reserve(_ bytes: Int) -> Bool {
            transfers.state.withLockedValue { state in
                guard bytes <= transfers.limit - state.bytes else { return false }
                state.bytes += bytes
                state.entries[id]?.bytes += bytes
                return true
            }
        }

        /// Calls `close` when the transfer is revoked, at once if it already is.
        func whenRevoked(_ close: @escaping @Sendable () -> Void) {
            let isRevoked = transfers.state.withLockedValue { state in
                state.entries[id]?.close = close
                return state.entries[id]?.revocation != nil
            }
            if isRevoked { close() }
        }
    }

    /// Registers a transfer, before the request is sent to the daemon.
    func begin(_ user: ThumbcacheID, _ profile: ThumbcacheID) -> Transfer {
        let id = state.withLockedValue { state in
            state.last += 1
            state.entries[state.last] = Entry(user: user, profile: profile)
            return state.last
        }
        return Transfer(self, id)
    }

    /// Revokes the transfers that an event concerns.
    func apply(_ event: ThumbcacheEvent) {
        switch event {
        case .logout(let user, _): revoke(.missing) { $0.user == user }
        case .purge(let user, let profile, _):
            revoke(.missing) { $0.user == user && (profile == nil || $0.profile == profile) }
        // Any user may have been logged out between the two.
        case .gap, .subscribed: revoke(.failure(.unavailable)) { _ in true }
        case .login, .update: break
        }
    }

    private func revoke(_ outcome: ImageOutcome, _ isMeant: (Entry) -> Bool) {
        let closes = state.withLockedValue { state in
            let ids = state.entries.filter { isMeant($0.value) }.keys
            for id in ids where state.entries[id]?.revocation == nil { state.entries[id]?.revocation = outcome }
            return ids.compactMap { state.entries[$0]?.close }
        }
        for close in closes { close() }
    }

    private func end(_ id: UInt64) {
        state.withLockedValue { state in
            if let entry = state.entries.removeValue(forKey: id) { state.bytes -= entry.bytes }
        }
    }

    var count: Int { state.withLockedValue { $0.entries.count } }

    /// The reserved memory.
    var bytes: Int { state.withLockedValue { $0.bytes } }
}

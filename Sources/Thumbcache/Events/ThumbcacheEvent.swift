import NIOCore
import ThumbcacheProtocol

/// What happened to the caches of the caller's uid, whoever did it.
///
/// Between ``gap`` and ``subscribed`` events may be missing: whoever keeps copies of images keeps none in that time.
public enum ThumbcacheEvent: Sendable, Hashable {
    /// From here on nothing is missed. The first event, and the first behind each gap.
    case subscribed
    /// The user's cache was opened.
    case login(user: ThumbcacheID, epoch: Int)
    /// The user's cache has ended: drop everything that was kept of it. Sent before whoever logged out has the receipt.
    case logout(user: ThumbcacheID, epoch: Int)
    /// The user's images were removed, or those of one profile: drop them. Sent before the receipt, too.
    case purge(user: ThumbcacheID, profile: ThumbcacheID?, epoch: Int)
    /// What is held of the profile has changed, in any size: it was put or downloaded, or there is none any more.
    case update(user: ThumbcacheID, profile: ThumbcacheID, epoch: Int)
    /// The connection broke, or too many events were left unread: drop everything that was kept of anybody.
    case gap

    /// The event of a message; nil for one that this library does not know.
    init?(user: ThumbcacheID, payload: ByteBuffer) {
        // The profile is all that stands behind the second space, spaces and all.
        let parts = payload.readableBytesView.split(
            separator: UInt8(ascii: " "), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count >= 2, let epoch = Int(String(decoding: parts[1], as: UTF8.self)) else { return nil }
        let profile = parts.count == 3 ? ThumbcacheID(bytes: parts[2]) : nil
        switch (String(decoding: parts[0], as: UTF8.self), profile) {
        case ("login", nil): self = .login(user: user, epoch: epoch)
        case ("logout", nil): self = .logout(user: user, epoch: epoch)
        case ("purge", let profile): self = .purge(user: user, profile: profile, epoch: epoch)
        case ("update", let profile?): self = .update(user: user, profile: profile, epoch: epoch)
        default: return nil
        }
    }
}

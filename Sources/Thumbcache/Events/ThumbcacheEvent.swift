import NIOCore
import ThumbcacheProtocol

/// An event of the caches of the caller's uid, whichever client caused it.
///
/// Events between ``gap`` and ``subscribed`` are lost. A program that keeps copies of images must not keep any during
/// that time.
public enum ThumbcacheEvent: Sendable, Hashable {
    /// The subscription is active. The first event, and the first after each gap.
    case subscribed
    /// The user's cache was opened.
    case login(user: ThumbcacheID, epoch: Int)
    /// The user's cache has ended: discard all its images. Sent before the client that logged out gets its receipt.
    case logout(user: ThumbcacheID, epoch: Int)
    /// The user's images, or those of one profile, were removed: discard them. Sent before the receipt.
    case purge(user: ThumbcacheID, profile: ThumbcacheID?, epoch: Int)
    /// The image of the profile has changed, in any size: it was stored, downloaded or removed.
    case update(user: ThumbcacheID, profile: ThumbcacheID, epoch: Int)
    /// The connection was lost, or too many events were unread: discard all images of all users.
    case gap

    /// Nil for events that this version does not know.
    init?(user: ThumbcacheID, payload: ByteBuffer) {
        // The profile is everything after the second space and may contain spaces.
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

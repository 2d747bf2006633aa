/// Counts what was written to a channel and how much of it the peer has taken.
struct OutputMeter {
    private var written = 0
    /// Bytes that the channel still held when it was last asked.
    private var buffered = 0
    /// Bytes written since.
    private var added = 0
    /// Whether something was written that was not flushed.
    private(set) var needsFlush = false

    /// Bytes that the peer has not yet taken, as far as is known: it may have taken some that were written since the channel
    /// was last asked.
    var unread: Int { buffered + added }
    /// Bytes that the peer is known to have taken so far.
    var sent: Int { written - unread }

    mutating func wrote(_ bytes: Int) {
        written += bytes
        added += bytes
        needsFlush = true
    }

    mutating func flushed() {
        needsFlush = false
    }

    /// - Parameter buffered: bytes that the channel holds now, flushed or not.
    mutating func measured(buffered: Int) {
        self.buffered = buffered
        added = 0
    }
}

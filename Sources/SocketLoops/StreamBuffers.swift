import CLinux
import LinuxSupport
import NIOCore

/// What all streams of a loop read into and send from, one at a time: so an idle stream holds no memory.
final class StreamBuffers {
    /// Lent to whoever is told what came. Should they keep it, there is a new one for the next.
    var input = ByteBuffer()
    /// As many replies as leave in one go.
    let spans = UnsafeMutableBufferPointer<clinux_span>.allocate(capacity: 64)

    /// Bytes read at once.
    static var inputSize: Int { 64 << 10 }

    /// Zeroes what was read. Who has kept it keeps the storage: it is not read into again, lest what nobody wipes stay there.
    func forgetInput() {
        if !input.wipeReadableBytes() { input = ByteBuffer() }
    }

    deinit { spans.deallocate() }
}

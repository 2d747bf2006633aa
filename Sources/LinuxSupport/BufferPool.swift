import NIOConcurrencyHelpers
import NIOCore

/// Buffers of sent replies, reused for later ones. Otherwise each image from disk would overwrite its memory twice, when
/// it is allocated and when it is freed (M_PERTURB), which takes as long as decrypting half of it.
///
/// A buffer is wiped when it is given back. Holds at most 512 KiB.
public final class BufferPool: Sendable {
    private struct State {
        /// By ``BufferPool/sizeClass(_:)``.
        var idle = [[ByteBuffer]](repeating: [], count: BufferPool.sizes.count)
        var bytes = 0
    }

    /// Logarithms of the sizes of the buffers that are kept: 4 to 64 KiB.
    private static let sizes = 12...16
    private static let limit = 512 << 10

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// Bytes of the buffers that are kept.
    public var bytes: Int { state.withLockedValue { $0.bytes } }

    /// Returns an empty buffer, as `ByteBufferAllocator` does.
    public func buffer(capacity: Int) -> ByteBuffer {
        let kept = Self.sizeClass(capacity).flatMap { sizeClass in
            state.withLockedValue { state in
                let buffer = state.idle[sizeClass].popLast()
                if let buffer { state.bytes -= buffer.storageCapacity }
                return buffer
            }
        }
        return kept ?? ByteBufferAllocator().buffer(capacity: capacity)
    }

    /// Takes a buffer that is not used any more. Frees it if it is shared or not needed.
    public func giveBack(_ buffer: consuming ByteBuffer) {
        let size = buffer.storageCapacity
        guard let sizeClass = Self.sizeClass(size), size.nonzeroBitCount == 1 else { return }
        let isSole: Void? = buffer.modifyIfUniquelyOwned { buffer in
            // Makes a slice the whole storage again.
            buffer.clear()
            buffer.wipe()
        }
        guard isSole != nil else { return }
        state.withLockedValue { [buffer] state in
            guard state.bytes + size <= Self.limit else { return }
            state.bytes += size
            state.idle[sizeClass].append(buffer)
        }
    }

    private static func sizeClass(_ capacity: Int) -> Int? {
        guard capacity > 0 else { return nil }
        let logarithm = Int.bitWidth - (capacity - 1).leadingZeroBitCount
        return sizes.contains(logarithm) ? logarithm - sizes.lowerBound : nil
    }
}

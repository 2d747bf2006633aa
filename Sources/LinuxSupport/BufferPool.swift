import NIOConcurrencyHelpers
import NIOCore

/// Buffers of sent replies, reused for images from disk. Otherwise such an image would overwrite its memory twice, when
/// it is allocated and when it is freed (M_PERTURB), which takes longer than encrypting or decrypting it.
///
/// A buffer is wiped when it is given back. Holds at most 512 KiB. Safe from any thread; each call costs one lock.
public final class BufferPool: Sendable {
    private struct State {
        /// By ``BufferPool/sizeClass(_:)``.
        var idle = [[ByteBuffer]](repeating: [], count: BufferPool.sizes.count)
        var bytes = 0

        /// Makes room by freeing buffers of other classes, so that a class that nobody asks for cannot fill the pool.
        mutating func reserve(_ size: Int, in sizeClass: Int) -> Bool {
            while bytes + size > BufferPool.limit {
                guard let other = idle.indices.last(where: { $0 != sizeClass && !idle[$0].isEmpty }) else {
                    return false
                }
                bytes -= idle[other].removeLast().storageCapacity
            }
            bytes += size
            return true
        }
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

    /// Takes a buffer that the caller does not use any more. Has no effect if something else still uses its storage.
    public func giveBack(_ buffer: consuming ByteBuffer) {
        let size = buffer.storageCapacity
        // A slice becomes the whole storage again.
        guard let sizeClass = Self.sizeClass(size), buffer.modifyIfUniquelyOwned({ $0.clear() }) != nil,
            state.withLockedValue({ $0.reserve(size, in: sizeClass) })
        else { return }
        buffer.wipe()
        var wiped = Optional(consume buffer)
        state.withLockedValue { state in
            // Moved, so that no reference is left outside the pool.
            if let buffer = wiped.take() { state.idle[sizeClass].append(buffer) }
        }
    }

    private static func sizeClass(_ capacity: Int) -> Int? {
        guard capacity > 0 else { return nil }
        let logarithm = Int.bitWidth - (capacity - 1).leadingZeroBitCount
        return sizes.contains(logarithm) ? logarithm - sizes.lowerBound : nil
    }
}

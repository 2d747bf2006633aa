import NIOConcurrencyHelpers
import NIOCore

/// Buffers of sent replies, reused for images from disk. Otherwise the allocator would overwrite them when it allocates
/// and when it frees them (M_PERTURB).
///
/// Kept buffers are wiped; others are freed. A kept buffer has a power of two bytes, and a size that images have needed.
/// Safe from any thread.
public final class BufferPool: Sendable {
    private struct State {
        // Both by ``BufferPool/sizeClass(_:)``.
        var idle = [[ByteBuffer]](repeating: [], count: BufferPool.sizes.count)
        /// The number of buffers that were requested and not given back, at most as many as may be kept.
        var wanted = [Int](repeating: 0, count: BufferPool.sizes.count)
        var bytes = 0
        let limit: Int

        mutating func take(_ sizeClass: Int) -> ByteBuffer? {
            wanted[sizeClass] = min(wanted[sizeClass] + 1, limit / BufferPool.size(of: sizeClass))
            let buffer = idle[sizeClass].popLast()
            if buffer != nil { bytes -= BufferPool.size(of: sizeClass) }
            return buffer
        }

        /// Returns the buffers of other sizes to free, which may be none; nil if the size is not wanted.
        mutating func makeRoom(for sizeClass: Int) -> [ByteBuffer]? {
            guard wanted[sizeClass] > 0 else { return nil }
            var out: [ByteBuffer] = []
            while bytes + BufferPool.size(of: sizeClass) > limit {
                guard let other = idle.indices.last(where: { $0 != sizeClass && !idle[$0].isEmpty }) else { return nil }
                out.append(idle[other].removeLast())
                bytes -= BufferPool.size(of: other)
            }
            wanted[sizeClass] -= 1
            bytes += BufferPool.size(of: sizeClass)
            return out
        }
    }

    /// Logarithms of the sizes of the buffers that are kept: 4 to 64 KiB.
    private static let sizes = 12...16

    private let limit: Int
    private let state: NIOLockedValueBox<State>

    /// - Parameter limit: maximum number of bytes to keep. With 0, the pool keeps no buffers, and new ones have exactly
    ///   the requested capacity.
    public init(limit: Int = 512 << 10) {
        self.limit = limit
        state = NIOLockedValueBox(State(limit: limit))
    }

    /// Bytes of the buffers that are kept.
    public var bytes: Int { state.withLockedValue { $0.bytes } }

    /// Returns an empty buffer with at least this capacity.
    public func buffer(capacity: Int) -> ByteBuffer {
        guard limit > 0, let sizeClass = Self.sizeClass(capacity) else {
            return ByteBufferAllocator().exactBuffer(capacity: capacity)
        }
        return state.withLockedValue { $0.take(sizeClass) } ?? ByteBufferAllocator().buffer(capacity: capacity)
    }

    /// Takes a buffer that the caller does not use any more. Has no effect if something else still uses its storage.
    public func giveBack(_ buffer: consuming ByteBuffer) {
        // A slice becomes the whole storage again.
        guard limit > 0, let sizeClass = Self.sizeClass(buffer.storageCapacity),
            buffer.storageCapacity == Self.size(of: sizeClass),
            buffer.modifyIfUniquelyOwned({ $0.clear() }) != nil,
            let others = state.withLockedValue({ $0.makeRoom(for: sizeClass) })
        else { return }
        buffer.wipe()
        var wiped = Optional(consume buffer)
        state.withLockedValue { state in
            // Moved, so that no reference is left outside the pool.
            if let buffer = wiped.take() { state.idle[sizeClass].append(buffer) }
        }
        // Freed outside the lock.
        _ = others
    }

    private static func size(of sizeClass: Int) -> Int { 1 << (sizes.lowerBound + sizeClass) }

    private static func sizeClass(_ capacity: Int) -> Int? {
        guard capacity > 0 else { return nil }
        let logarithm = Int.bitWidth - (capacity - 1).leadingZeroBitCount
        return sizes.contains(logarithm) ? logarithm - sizes.lowerBound : nil
    }
}

import Glibc
@_spi(CustomByteBufferAllocator) import NIOCore

extension ByteBufferAllocator {
    /// Returns an empty buffer of exactly `capacity` bytes. ``buffer(capacity:)`` would round up to a power of two: to
    /// 16 KiB for an image of 8 KiB and its frame.
    /// - Parameter capacity: at most `UInt32.max`. Writing more than that grows the buffer to a power of two.
    public func exactBuffer(capacity: Int) -> ByteBuffer {
        guard capacity > 0 else { return buffer(capacity: 0) }
        // The default allocator uses malloc(3), too, and also traps without memory.
        guard let memory = malloc(capacity) else { preconditionFailure("malloc(\(capacity)) failed") }
        return ByteBuffer(
            takingOwnershipOf: UnsafeMutableRawBufferPointer(start: memory, count: capacity),
            allocator: ByteBufferAllocator(), readerIndex: 0, writerIndex: 0)
    }
}

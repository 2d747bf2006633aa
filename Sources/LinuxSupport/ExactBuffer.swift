import Glibc
@_spi(CustomByteBufferAllocator) import NIOCore

extension ByteBufferAllocator {
    /// Returns an empty buffer of exactly `capacity` bytes, while ``buffer(capacity:)`` rounds up to the next power of
    /// two: 16 KiB for an image of 8 KiB and its frame.
    /// - Parameter capacity: at most `UInt32.max`. A buffer that needs more later grows as any other.
    public func exactBuffer(capacity: Int) -> ByteBuffer {
        // The default allocator also uses malloc(3) and free(3).
        guard capacity > 0, let memory = malloc(capacity) else { return buffer(capacity: capacity) }
        return ByteBuffer(
            takingOwnershipOf: UnsafeMutableRawBufferPointer(start: memory, count: capacity),
            allocator: ByteBufferAllocator(), readerIndex: 0, writerIndex: 0)
    }
}

import CLinux
import NIOCore

/// Zeroes memory in a way that the optimizer must not remove (I11).
public func wipeMemory(_ memory: UnsafeMutableRawBufferPointer) {
    if let start = memory.baseAddress { clinux_wipe(start, memory.count) }
}

/// Lends memory that is wiped afterwards.
public func withWipedMemory<Result, Failure: Error>(
    _ count: Int, _ body: (UnsafeMutableRawBufferPointer) throws(Failure) -> Result
) throws(Failure) -> Result {
    let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 16)
    defer {
        wipeMemory(memory)
        memory.deallocate()
    }
    return try body(memory)
}

extension [UInt8] {
    /// Zeroes the bytes. Reaches all copies only if the array was never reallocated.
    public mutating func wipe() { withUnsafeMutableBytes { wipeMemory($0) } }
}

extension ByteBuffer {
    /// Has no effect if the storage is shared.
    public mutating func wipe() {
        _ = modifyIfUniquelyOwned { buffer in buffer.withVeryUnsafeMutableBytes { wipeMemory($0) } }
    }

    /// Zeroes the readable bytes. Returns false, without effect, if the storage is shared.
    public mutating func wipeReadableBytes() -> Bool {
        modifyIfUniquelyOwned { buffer in buffer.withUnsafeMutableReadableBytes { wipeMemory($0) } } != nil
    }

    /// Zeroes the readable bytes, even if the storage is shared. Nothing may read them any more.
    public func wipeReadableBytesOfAll() {
        withUnsafeReadableBytes { wipeMemory(UnsafeMutableRawBufferPointer(mutating: $0)) }
    }

    /// Reserves space for `count` more bytes; at least 512 bytes in all, enough for most messages, so that a message
    /// is not copied seven times while it grows. Does not use realloc(3), which leaves an unwiped copy.
    public mutating func makeRoomWiping(for count: Int) {
        guard writableBytes < count else { return }
        var larger = ByteBufferAllocator().buffer(capacity: max(readableBytes + count, 2 * storageCapacity, 512))
        larger.writeImmutableBuffer(self)
        wipe()
        self = larger
    }
}

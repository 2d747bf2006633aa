import CLinux
import NIOCore

/// Zeroes memory that held what nobody is to see any more, in a way that the optimiser may not drop (I11).
public func wipeMemory(_ memory: UnsafeMutableRawBufferPointer) {
    if let start = memory.baseAddress { clinux_wipe(start, memory.count) }
}

/// Lends memory for a secret that is wiped afterwards.
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
    /// Zeroes the bytes. They lie nowhere else only if the array was made with room for all of them.
    public mutating func wipe() { withUnsafeMutableBytes { wipeMemory($0) } }
}

extension ByteBuffer {
    /// Zeroes the whole storage, unless somebody else has a share in it.
    public mutating func wipe() {
        _ = modifyIfUniquelyOwned { buffer in buffer.withVeryUnsafeMutableBytes { wipeMemory($0) } }
    }

    /// Zeroes the readable bytes, unless somebody else has a share in the storage: then it is false.
    public mutating func wipeReadableBytes() -> Bool {
        modifyIfUniquelyOwned { buffer in buffer.withUnsafeMutableReadableBytes { wipeMemory($0) } } != nil
    }

    /// Zeroes the readable bytes for everybody who has a share in them, and never looks at these.
    public func wipeReadableBytesOfAll() {
        withUnsafeReadableBytes { wipeMemory(UnsafeMutableRawBufferPointer(mutating: $0)) }
    }

    /// Makes room for so many bytes more. Not by realloc(3), which leaves what it moves where it was.
    public mutating func makeRoomWiping(for count: Int) {
        guard writableBytes < count else { return }
        var larger = ByteBufferAllocator().buffer(capacity: max(readableBytes + count, 2 * storageCapacity))
        larger.writeImmutableBuffer(self)
        wipe()
        self = larger
    }
}

import LinuxSupport
import NIOCore
import Testing

@Suite struct BufferPoolTests {
    private let pool = BufferPool()

    /// A buffer whose whole storage holds `byte`.
    private func filled(_ capacity: Int, _ byte: UInt8 = 7) -> ByteBuffer {
        var buffer = pool.buffer(capacity: capacity)
        buffer.writeRepeatingByte(byte, count: buffer.writableBytes)
        return buffer
    }

    private func address(_ buffer: ByteBuffer) -> UInt {
        buffer.withVeryUnsafeBytes { UInt(bitPattern: $0.baseAddress) }
    }

    private func isZero(_ buffer: ByteBuffer) -> Bool { buffer.withVeryUnsafeBytes { $0.allSatisfy { $0 == 0 } } }

    @Test(arguments: [4_096, 9_000, 16_384, 16_385, 65_536])
    func `I11: a buffer that was given back is used again, empty and zeroed`(_ capacity: Int) {
        let (size, place) = give(filled(capacity))
        let reused = pool.buffer(capacity: capacity)
        #expect(address(reused) == place && reused.storageCapacity == size && size >= capacity)
        #expect(reused.readableBytes == 0 && reused.writerIndex == 0 && isZero(reused))
    }

    /// Gives the only reference back. Returns the size and the address of the storage.
    private func give(_ buffer: consuming ByteBuffer) -> (Int, UInt) {
        let found = (buffer.storageCapacity, address(buffer))
        pool.giveBack(consume buffer)
        return found
    }

    @Test func `I11: a slice that is the last reference to a storage gives back the whole storage, zeroed`() {
        let place = give(slice()).1
        let reused = pool.buffer(capacity: 16_384)
        #expect(address(reused) == place && reused.writableBytes == 16_384 && isZero(reused))
    }

    private func slice() -> ByteBuffer { filled(16_384).getSlice(at: 0, length: 100) ?? ByteBuffer() }

    @Test func `a buffer that something else still reads is neither changed nor used again`() {
        let reader = filled(16_384)
        pool.giveBack(reader)
        let other = pool.buffer(capacity: 16_384)
        #expect(address(other) != address(reader))
        #expect(reader.readableBytesView.allSatisfy { $0 == 7 })
    }

    @Test(arguments: [0, 1, 2_048, 131_072])
    func `small and large buffers are not kept`(_ capacity: Int) {
        _ = give(filled(capacity))
        #expect(pool.bytes == 0)
    }

    @Test func `a buffer between two sizes is not kept, since it could be too small for the next request`() {
        _ = pool.buffer(capacity: 16_384)
        _ = give(ByteBufferAllocator().exactBuffer(capacity: 9_000))
        #expect(pool.bytes == 0 && pool.buffer(capacity: 16_384).storageCapacity == 16_384)
    }

    @Test func `a pool with limit 0 keeps no buffers and returns exact ones`() {
        let pool = BufferPool(limit: 0)
        for capacity in [9_000, 16_384] {
            let buffer = pool.buffer(capacity: capacity)
            #expect(buffer.storageCapacity == capacity)
            pool.giveBack(buffer)
            #expect(pool.bytes == 0)
        }
    }

    @Test(arguments: [0, 1, 8_218])
    func `an exact buffer has the requested capacity, and grows like others`(_ capacity: Int) {
        var buffer = ByteBufferAllocator().exactBuffer(capacity: capacity)
        #expect(buffer.storageCapacity == capacity && buffer.readableBytes == 0)
        let bytes = (0..<capacity + 100).map { UInt8(truncatingIfNeeded: $0) }
        buffer.writeBytes(bytes)
        #expect(Array(buffer.readableBytesView) == bytes)
    }

    @Test func `only sizes that were requested are kept`() {
        for size in [4_096, 16_384, 65_536] {
            _ = give(ByteBuffer(repeating: 7, count: size))
        }
        #expect(pool.bytes == 0)
        _ = give(filled(16_384))
        #expect(pool.bytes == 16_384)
    }

    @Test(arguments: [4_096, 65_536])
    func `buffers of a size that is not needed any more make room for others`(_ size: Int) {
        var held = (0..<200).map { _ in filled(size) }
        while let buffer = held.popLast() { pool.giveBack(buffer) }
        #expect(pool.bytes == 512 << 10)
        _ = give(filled(16_384))
        let before = pool.bytes
        #expect(before >= (512 << 10) - size && before <= 512 << 10)
        #expect(isZero(pool.buffer(capacity: 16_384)) && pool.bytes == before - 16_384)
    }

    @Test func `I8: at most 512 KiB are kept`() {
        var held = (0..<100).map { _ in filled(16_384) }
        while let buffer = held.popLast() { pool.giveBack(buffer) }
        #expect(pool.bytes == 512 << 10)
        for _ in 0..<40 { held.append(pool.buffer(capacity: 16_384)) }
        #expect(pool.bytes == 0)
    }
}

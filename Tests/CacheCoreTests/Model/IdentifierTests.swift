import CacheCore
import NIOCore
import Testing

/// Ids are compared by their bytes, whatever their representation.
@Suite struct IdentifierTests {
    /// Lengths around the limit of inline storage, with bytes that could be mistaken for a length or padding.
    private static let all: [[UInt8]] = [0, 1, 2, 7, 8, 29, 30, 31, 32, 33, 511, 512].flatMap { count in
        [0, 1, 31, 0x41, 0xFF].map { [UInt8](repeating: $0, count: count) } + [ascending(count)]
    }

    private static func ascending(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0) } }

    private func id(_ bytes: [UInt8]) -> OpaqueID { OpaqueID(ByteBuffer(bytes: bytes)) }

    @Test func `F23: an id has the bytes that it was created from`() {
        for bytes in Self.all {
            for id in [id(bytes), id(bytes).detached()] {
                #expect(id.withBytes { Array($0) } == bytes && id.count == bytes.count)
            }
        }
    }

    @Test func `F23: ids are equal if and only if all their bytes are`() {
        for left in Self.all {
            for right in Self.all {
                #expect((id(left) == id(right)) == (left == right))
            }
        }
    }

    @Test func `I1, F23: ids that differ in one byte at any position are different`() {
        for count in 1...33 {
            let bytes = Self.ascending(count)
            for place in 0..<count {
                var other = bytes
                other[place] ^= 0x80
                #expect(id(bytes) != id(other))
                #expect(Set([id(bytes), id(other)]).count == 2)
            }
        }
    }

    @Test func `an id is found in a dictionary however it was created`() {
        for bytes in Self.all {
            // From within a larger buffer, as in a request.
            var request = ByteBuffer(bytes: [1, 2, 3] + bytes + [4, 5])
            request.moveReaderIndex(forwardBy: 3)
            var made = [OpaqueID(request.readSlice(length: bytes.count) ?? ByteBuffer())]
            made += bytes.withUnsafeBytes { OpaqueID(short: $0) }.map { [$0] } ?? []
            made += made.map { $0.detached() }
            #expect(made.allSatisfy { [id(bytes): true][$0] == true })
            #expect(made.count == (bytes.count <= 31 ? 4 : 2))
        }
    }
}

/// Bytes that must not be seen (I11): wiped when the last reference goes, and never part of a description.
public final class Secret: @unchecked Sendable, Equatable, CustomStringConvertible, CustomReflectable {
    // Unchecked, because a pointer is not Sendable: what it points at is written once, before anybody else sees it.
    private let bytes: UnsafeMutableRawBufferPointer

    public init(_ bytes: some Collection<UInt8>) {
        self.bytes = .allocate(byteCount: bytes.count, alignment: 16)
        self.bytes.copyBytes(from: bytes)
    }

    deinit {
        wipeMemory(bytes)
        bytes.deallocate()
    }

    public var count: Int { bytes.count }

    /// Lends the bytes. They must not be kept.
    public func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(bytes))
    }

    public static func == (left: Secret, right: Secret) -> Bool {
        left.withBytes { leftBytes in right.withBytes { leftBytes.elementsEqual($0) } }
    }

    public var description: String { "(secret)" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

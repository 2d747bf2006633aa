/// Secret bytes (I11): wiped with the last reference, and hidden from descriptions.
public final class Secret: @unchecked Sendable, Equatable, CustomStringConvertible, CustomReflectable {
    // Unchecked: the memory is written only during initialization.
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

    /// Lends the bytes; the pointer must not escape.
    public func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(bytes))
    }

    public static func == (left: Secret, right: Secret) -> Bool {
        left.withBytes { leftBytes in right.withBytes { leftBytes.elementsEqual($0) } }
    }

    public var description: String { "(secret)" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

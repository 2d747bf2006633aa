import LinuxSupport

/// Bytes that must not be seen (I11): wiped when the last reference goes, and never part of a description.
public final class Secret: Sendable, Equatable, CustomStringConvertible, CustomReflectable {
    private let storage: SecretStorage

    public init(_ bytes: some Collection<UInt8>) {
        storage = SecretStorage(bytes)
    }

    public var count: Int { storage.buffer.count }

    /// Lends the bytes. They must not be kept.
    public func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(storage.buffer))
    }

    public static func == (left: Secret, right: Secret) -> Bool {
        left.withBytes { leftBytes in right.withBytes { leftBytes.elementsEqual($0) } }
    }

    public var description: String { "(secret)" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// The memory of a secret: written once before anybody else sees it, so that sharing it is safe.
private final class SecretStorage: @unchecked Sendable {
    let buffer: UnsafeMutableRawBufferPointer

    init(_ bytes: some Collection<UInt8>) {
        buffer = .allocate(byteCount: bytes.count, alignment: 16)
        buffer.copyBytes(from: bytes)
    }

    deinit {
        wipeMemory(buffer)
        buffer.deallocate()
    }
}

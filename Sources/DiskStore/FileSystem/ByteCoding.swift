import LinuxSupport

/// Reads big-endian fields from untrusted bytes. Never reads past the end; returns nil for a field that is cut off.
struct ByteReader {
    private let bytes: UnsafeRawBufferPointer
    private var position = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    var isAtEnd: Bool { position == bytes.count }

    mutating func integer<Integer: FixedWidthInteger>(_: Integer.Type) -> Integer? {
        guard let field = read(MemoryLayout<Integer>.size) else { return nil }
        return Integer(bigEndian: field.loadUnaligned(as: Integer.self))
    }

    mutating func read(_ count: Int) -> UnsafeRawBufferPointer? {
        guard count >= 0, count <= bytes.count - position else { return nil }
        defer { position += count }
        return UnsafeRawBufferPointer(rebasing: bytes[position..<(position + count)])
    }

    /// Reads a field preceded by its length in two bytes.
    mutating func field() -> UnsafeRawBufferPointer? {
        guard let count = integer(UInt16.self) else { return nil }
        return read(Int(count))
    }

    /// Reads an optional value, preceded by a byte that is 1 if it is present and 0 if not. Returns `.some(nil)` for an
    /// absent value, nil for invalid bytes.
    mutating func optional<Value>(_ read: (inout ByteReader) -> Value?) -> Value?? {
        switch integer(UInt8.self) {
        case 0: .some(nil)
        case 1: read(&self).map { .some($0) }
        default: nil
        }
    }

    mutating func text() -> String? {
        guard let field = field() else { return nil }
        return String(validating: field, as: UTF8.self)
    }
}

/// Appends big-endian fields to an array.
struct ByteWriter {
    private(set) var bytes: [UInt8] = []
    /// Whether a field was longer than 65,535 bytes, which makes the result unusable.
    private(set) var isTooLong = false

    /// - Parameter capacity: if it suffices, the array is never moved, so that ``wipe()`` reaches every copy.
    init(capacity: Int) { bytes.reserveCapacity(capacity) }

    mutating func integer(_ value: some FixedWidthInteger) {
        withUnsafeBytes(of: value.bigEndian) { bytes.append(contentsOf: $0) }
    }

    mutating func append(_ field: some Sequence<UInt8>) { bytes.append(contentsOf: field) }

    mutating func optional<Value>(_ value: Value?, _ write: (inout ByteWriter, Value) -> Void) {
        integer(UInt8(value == nil ? 0 : 1))
        if let value { write(&self, value) }
    }

    /// Appends a field preceded by its length in two bytes.
    mutating func field(_ field: UnsafeRawBufferPointer) {
        guard let count = UInt16(exactly: field.count) else {
            isTooLong = true
            return
        }
        integer(count)
        append(field)
    }

    mutating func text(_ text: String) {
        var text = text
        text.withUTF8 { field(UnsafeRawBufferPointer($0)) }
    }

    mutating func wipe() { bytes.wipe() }
}

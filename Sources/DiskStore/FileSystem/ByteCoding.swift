import LinuxSupport

/// Takes big-endian fields from bytes that anybody may have written. Never reads past the end: what is not there is
/// nil.
struct ByteReader {
    private let bytes: UnsafeRawBufferPointer
    private var position = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    var isAtEnd: Bool { position == bytes.count }

    mutating func integer<Integer: FixedWidthInteger>(_: Integer.Type) -> Integer? {
        guard let field = take(MemoryLayout<Integer>.size) else { return nil }
        return Integer(bigEndian: field.loadUnaligned(as: Integer.self))
    }

    mutating func take(_ count: Int) -> UnsafeRawBufferPointer? {
        guard count >= 0, count <= bytes.count - position else { return nil }
        defer { position += count }
        return UnsafeRawBufferPointer(rebasing: bytes[position..<(position + count)])
    }

    /// A field with its length before it in two bytes.
    mutating func field() -> UnsafeRawBufferPointer? {
        guard let count = integer(UInt16.self) else { return nil }
        return take(Int(count))
    }

    /// What may be missing, behind a byte that says whether it is there. Nil in nil where it is not.
    mutating func optional<Value>(_ read: (inout ByteReader) -> Value?) -> Value?? {
        switch integer(UInt8.self) {
        case 0: .some(nil)
        case 1: read(&self).map { .some($0) }
        default: nil
        }
    }

    /// A field of valid UTF-8.
    mutating func text() -> String? {
        guard let field = field() else { return nil }
        return String(validating: field, as: UTF8.self)
    }
}

/// Appends big-endian fields.
struct ByteWriter {
    private(set) var bytes: [UInt8] = []
    /// Whether a field was longer than its length can say; the bytes are worth nothing then.
    private(set) var isTooLong = false

    /// - Parameter capacity: bytes to make room for at once; with all of them nothing is moved, and ``wipe()`` reaches
    ///   every copy.
    init(capacity: Int) { bytes.reserveCapacity(capacity) }

    mutating func integer(_ value: some FixedWidthInteger) {
        withUnsafeBytes(of: value.bigEndian) { bytes.append(contentsOf: $0) }
    }

    mutating func append(_ field: some Sequence<UInt8>) { bytes.append(contentsOf: field) }

    mutating func optional<Value>(_ value: Value?, _ write: (inout ByteWriter, Value) -> Void) {
        integer(UInt8(value == nil ? 0 : 1))
        if let value { write(&self, value) }
    }

    /// A field with its length before it in two bytes.
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

import NIOCore

/// The elements of an array, a map or a push message. The strings of a reply become values when they are accessed, because
/// a value with its reference to the reply's bytes costs more than finding it.
public struct ValueList: Sendable {
    private struct Entry {
        enum Kind: UInt8 { case string, integer, null, other }

        let kind: Kind
        /// The offset of a string in the readable bytes of ``bytes``.
        let start: UInt32
        /// The length of a string, an integer, or the index of an element of ``others``.
        let number: Int
    }

    private let bytes: ByteBuffer
    private var entries: [Entry] = []
    /// Elements that are not strings, integers or nulls.
    private var others: [Value] = []

    /// Creates an empty list for elements in the bytes of a reply.
    init(in bytes: ByteBuffer, capacity: Int) {
        self.bytes = bytes
        entries.reserveCapacity(capacity)
    }

    public init(_ values: some Sequence<Value>) {
        bytes = ByteBuffer()
        for value in values { append(value) }
    }

    mutating func append(_ value: Value) {
        switch value {
        case .integer(let number): entries.append(Entry(kind: .integer, start: 0, number: number))
        case .null: entries.append(Entry(kind: .null, start: 0, number: 0))
        default:
            entries.append(Entry(kind: .other, start: 0, number: others.count))
            others.append(value)
        }
    }

    /// Appends a string in the bytes of the reply.
    mutating func appendString(at start: Int, length: Int) {
        // A buffer has at most 2^32 bytes.
        entries.append(Entry(kind: .string, start: UInt32(truncatingIfNeeded: start), number: length))
    }

    /// Returns the index of the value of a key, in a list of keys and values, or nil.
    /// - Parameter index: the index of a key at which the search begins. It continues at the beginning of the list.
    public func indexOfValue(_ key: String, from index: Int = 0) -> Int? {
        var key = key
        return key.withUTF8 { key in
            let pairs = entries.count / 2
            for offset in 0..<pairs {
                let pair = index / 2 + offset
                let place = 2 * (pair < pairs ? pair : pair - pairs)
                if isString(key, at: place) { return place + 1 }
            }
            return nil
        }
    }

    private func isString(_ text: UnsafeBufferPointer<UInt8>, at index: Int) -> Bool {
        let entry = entries[index]
        guard entry.kind == .string else { return self[index].bytes == ByteBuffer(bytes: text) }
        guard entry.number == text.count else { return false }
        return withBytes(of: entry) { bytes in
            for offset in 0..<text.count where bytes[offset] != text[offset] { return false }
            return true
        }
    }

    /// The text of an element; see ``Value/text``. Faster than creating the element.
    public func text(at index: Int) -> String? {
        let entry = entries[index]
        guard entry.kind == .string else { return self[index].text }
        return withBytes(of: entry) { String(decoding: $0, as: UTF8.self) }
    }

    private func withBytes<Result>(of string: Entry, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        bytes.withUnsafeReadableBytes { bytes in
            let start = Int(string.start)
            return body(UnsafeRawBufferPointer(rebasing: bytes[start..<start + string.number]))
        }
    }
}

extension ValueList: RandomAccessCollection {
    public var startIndex: Int { 0 }
    public var endIndex: Int { entries.count }

    public subscript(index: Int) -> Value {
        let entry = entries[index]
        switch entry.kind {
        case .string:
            let string = bytes.getSlice(at: bytes.readerIndex + Int(entry.start), length: entry.number)
            return .bulk(string ?? ByteBuffer())
        case .integer: return .integer(entry.number)
        case .null: return .null
        case .other: return others[entry.number]
        }
    }
}

extension ValueList: Equatable {
    public static func == (list: ValueList, other: ValueList) -> Bool { list.elementsEqual(other) }
}

extension ValueList: ExpressibleByArrayLiteral {
    public init(arrayLiteral values: Value...) { self.init(values) }
}

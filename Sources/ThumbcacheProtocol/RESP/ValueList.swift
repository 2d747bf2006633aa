import NIOCore

/// The elements of an array, a map or a push message.
///
/// Stores the offsets of strings in their reply, and creates a ``Value`` on access, because retaining the reply's
/// storage for each element costs more than parsing it. A list with strings shares the storage of its reply.
public struct ValueList: Sendable {
    private struct Item {
        enum Kind: UInt8 { case string, integer, null, other }

        let kind: Kind
        /// The offset of a string in the readable bytes of ``bytes``.
        let start: UInt32
        /// The length of a string, an integer, or the index of an element of ``others``.
        let number: Int
    }

    /// The reply and the bytes after it; empty without strings.
    private var bytes = ByteBuffer()
    private var items: [Item] = []
    /// Elements that are not strings, integers or nulls.
    private var others: [Value] = []

    init(capacity: Int) { items.reserveCapacity(capacity) }

    public init(_ values: some Sequence<Value>) {
        for value in values { append(value) }
    }

    mutating func append(_ value: Value) {
        switch value {
        case .integer(let number): items.append(Item(kind: .integer, start: 0, number: number))
        case .null: items.append(Item(kind: .null, start: 0, number: 0))
        default:
            items.append(Item(kind: .other, start: 0, number: others.count))
            others.append(value)
        }
    }

    /// Appends a string of a reply. The range must lie within the readable bytes of the reply, and each call must pass
    /// the same reply. In release builds, comparisons and ``text(at:)`` do not check the range.
    mutating func appendString(at start: Int, length: Int, in reply: ByteBuffer) {
        assert(start >= 0 && length >= 0 && start + length <= reply.readableBytes)
        if bytes.readableBytes == 0 { bytes = reply }
        // A buffer has at most 2^32 bytes.
        items.append(Item(kind: .string, start: UInt32(truncatingIfNeeded: start), number: length))
    }

    /// Returns the index of the value of a key, in a list of keys and values, or nil.
    /// - Parameter index: the index of the first key to compare, or `count`. The search wraps around to the beginning
    ///   of the list. The last element of a list of odd length is ignored.
    public func indexOfValue(_ key: String, from index: Int = 0) -> Int? {
        var key = key
        return key.withUTF8 { key in
            let pairs = items.count / 2
            for offset in 0..<pairs {
                let pair = index / 2 + offset
                let place = 2 * (pair < pairs ? pair : pair - pairs)
                if isString(key, at: place) { return place + 1 }
            }
            return nil
        }
    }

    private func isString(_ text: UnsafeBufferPointer<UInt8>, at index: Int) -> Bool {
        let item = items[index]
        guard item.kind == .string else {
            switch self[index] {
            case .bulk(let bytes): return bytes.readableBytesView.elementsEqual(text)
            case .simpleString(let own): return own.utf8.elementsEqual(text)
            default: return false
            }
        }
        guard item.number == text.count else { return false }
        return withBytes(of: item) { bytes in
            // With `elementsEqual`, a GET with metadata takes 1,900 instructions more.
            for offset in 0..<text.count where bytes[offset] != text[offset] { return false }
            return true
        }
    }

    /// The text of an element; see ``Value/text``. Faster than creating the element.
    public func text(at index: Int) -> String? {
        let item = items[index]
        guard item.kind == .string else { return self[index].text }
        return withBytes(of: item) { String(decoding: $0, as: UTF8.self) }
    }

    private func withBytes<Result>(of string: Item, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        bytes.withUnsafeReadableBytes { bytes in
            let start = Int(string.start)
            return body(UnsafeRawBufferPointer(rebasing: bytes[start..<start + string.number]))
        }
    }
}

extension ValueList: RandomAccessCollection {
    public var startIndex: Int { 0 }
    public var endIndex: Int { items.count }

    public subscript(index: Int) -> Value {
        let item = items[index]
        switch item.kind {
        case .string:
            let string = bytes.getSlice(at: bytes.readerIndex + Int(item.start), length: item.number)
            return .bulk(string ?? ByteBuffer())
        case .integer: return .integer(item.number)
        case .null: return .null
        case .other: return others[item.number]
        }
    }
}

extension ValueList: Equatable {
    public static func == (list: ValueList, other: ValueList) -> Bool { list.elementsEqual(other) }
}

extension ValueList: ExpressibleByArrayLiteral {
    public init(arrayLiteral values: Value...) { self.init(values) }
}

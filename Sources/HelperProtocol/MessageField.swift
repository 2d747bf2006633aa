import LinuxSupport
import NIOCore

/// A value that a message can carry.
package protocol MessageValue: Sendable {
    func write(to message: inout MessageWriter)
    init(from message: inout MessageReader) throws(MessageError)
}

/// A property of a type that messages carry: one declaration for writing and reading it.
package struct MessageField<Root>: Sendable {
    fileprivate let write: @Sendable (Root, inout MessageWriter) -> Void
    fileprivate let read: @Sendable (inout MessageReader, inout Root) throws(MessageError) -> Void

    package init<Value: MessageValue>(_ property: any WritableKeyPath<Root, Value> & Sendable) {
        write = { root, message in root[keyPath: property].write(to: &message) }
        read = { message, root throws(MessageError) in root[keyPath: property] = try Value(from: &message) }
    }
}

extension MessageWriter {
    package mutating func fields<Root>(_ fields: [MessageField<Root>], of root: Root) {
        for field in fields { field.write(root, &self) }
    }
}

extension MessageReader {
    package mutating func fields<Root>(_ fields: [MessageField<Root>], into root: inout Root) throws(MessageError) {
        for field in fields { try field.read(&self, &root) }
    }
}

/// Limits, sizes and durations: a negative number and one that the type cannot hold are errors.
extension MessageValue where Self: FixedWidthInteger {
    package func write(to message: inout MessageWriter) { message.integer(Int64(clamping: self)) }

    package init(from message: inout MessageReader) throws(MessageError) {
        let number = try message.integer(as: Int64.self)
        guard number >= 0, let value = Self(exactly: number) else { throw MessageError("\(number) is out of range") }
        self = value
    }
}

extension Int: MessageValue {}
extension Int64: MessageValue {}
extension UInt16: MessageValue {}

extension Bool: MessageValue {
    package func write(to message: inout MessageWriter) { message.flag(self) }
    package init(from message: inout MessageReader) throws(MessageError) { self = try message.flag() }
}

extension String: MessageValue {
    package func write(to message: inout MessageWriter) { message.text(self) }
    package init(from message: inout MessageReader) throws(MessageError) { self = try message.text() }
}

/// Enumerations of words.
extension MessageValue where Self: RawRepresentable, RawValue == String {
    package func write(to message: inout MessageWriter) { message.text(rawValue) }

    package init(from message: inout MessageReader) throws(MessageError) {
        let word = try message.text()
        guard let value = Self(rawValue: word) else { throw MessageError("unknown \(Self.self)") }
        self = value
    }
}

extension Array: MessageValue where Element: MessageValue {
    package func write(to message: inout MessageWriter) { message.list(self) { $1.write(to: &$0) } }

    package init(from message: inout MessageReader) throws(MessageError) {
        self = try message.list(maximum: .max) { message throws(MessageError) in try Element(from: &message) }
    }
}

extension Set: MessageValue where Element: MessageValue {
    package func write(to message: inout MessageWriter) { message.list(self) { $1.write(to: &$0) } }
    package init(from message: inout MessageReader) throws(MessageError) { self.init(try [Element](from: &message)) }
}

extension Optional: MessageValue where Wrapped: MessageValue {
    package func write(to message: inout MessageWriter) { message.optional(self) { $1.write(to: &$0) } }

    package init(from message: inout MessageReader) throws(MessageError) {
        self = try message.optional { message throws(MessageError) in try Wrapped(from: &message) }
    }
}

extension Secret: MessageValue {
    package func write(to message: inout MessageWriter) { message.secret(self) }

    package convenience init(from message: inout MessageReader) throws(MessageError) {
        self.init(try message.bytes().readableBytesView)
    }
}

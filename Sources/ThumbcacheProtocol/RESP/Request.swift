import LinuxSupport
import NIOCore

/// A request as it came: a list of byte strings, the command's name first.
///
/// It shares the storage of the buffer it was read from. Up to eight arguments take no allocation.
public struct Request: Sendable {
    @usableFromInline let frame: ByteBuffer
    @usableFromInline let arguments: ArgumentList

    /// Arguments, the command's name included; at least 1 in what a ``RequestDecoder`` returns.
    @inlinable public var count: Int { arguments.count }

    /// Bytes of all arguments with the lines that declare them.
    @inlinable public var byteCount: Int { frame.readableBytes }

    /// An argument, sharing the request's storage. Costs a reference count, no copy.
    @inlinable public subscript(index: Int) -> ByteBuffer {
        let span = arguments[index]
        guard let slice = frame.getSlice(at: frame.readerIndex &+ Int(span.offset), length: Int(span.length)) else {
            preconditionFailure("an argument lies within its frame")
        }
        return slice
    }

    /// The same request, in storage of its own if what it shares is much larger.
    public func detached() -> Request {
        guard frame.readableBytes < frame.storageCapacity / 4 else { return self }
        return Request(frame: ByteBuffer(bytes: frame.readableBytesView), arguments: arguments)
    }

    /// Zeroes the bytes, for everybody who shares them: for a request that held a secret, when all of it
    /// is copied that is to stay.
    public func wipe() { frame.wipeReadableBytesOfAll() }

    /// Lends the bytes of an argument, without touching a reference count. They must not be kept.
    @inlinable public func withBytes<Result, Failure: Error>(
        of index: Int, _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let span = arguments[index]
        return try frame.withUnsafeReadableBytes { bytes throws(Failure) in
            let start = Int(span.offset)
            return try body(UnsafeRawBufferPointer(rebasing: bytes[start..<start &+ Int(span.length)]))
        }
    }
}

/// Where an argument lies in its frame, in bytes.
@usableFromInline struct ArgumentSpan: Sendable {
    @usableFromInline let offset: UInt32
    @usableFromInline let length: UInt32

    /// Both are below 2^32, as every index of a ``NIOCore/ByteBuffer`` is.
    init(offset: Int, length: Int) {
        self.offset = UInt32(truncatingIfNeeded: offset)
        self.length = UInt32(truncatingIfNeeded: length)
    }
}

/// The arguments of a request in order: the first eight in place, the others in an array.
@usableFromInline struct ArgumentList: Sendable {
    static let inPlace = 8

    @usableFromInline var count = 0
    @usableFromInline var first = InlineArray<8, ArgumentSpan>(repeating: ArgumentSpan(offset: 0, length: 0))
    @usableFromInline var others: [ArgumentSpan] = []

    init() {}

    mutating func append(_ span: ArgumentSpan) {
        if count < Self.inPlace {
            first[count] = span
        } else {
            others.append(span)
        }
        count &+= 1
    }

    /// Leaves the spans as they are: what lies behind ``count`` is never looked at.
    mutating func removeAll() {
        count = 0
        if !others.isEmpty { others = [] }
    }

    @inlinable subscript(index: Int) -> ArgumentSpan {
        precondition(index >= 0 && index < count, "an argument that the request has")
        return index < 8 ? first[index] : others[index &- 8]
    }
}

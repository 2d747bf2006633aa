import LinuxSupport
import NIOCore

/// A request: a list of byte strings, the command's name first.
///
/// It shares the storage of the buffer it was read from. Up to eight arguments need no allocation.
public struct Request: Sendable {
    @usableFromInline let frame: ByteBuffer
    @usableFromInline let arguments: ArgumentList

    /// The number of arguments, including the command's name; at least 1 for requests of ``RequestDecoder``.
    @inlinable public var count: Int { arguments.count }

    /// The bytes of all arguments, including the lines that declare their lengths.
    @inlinable public var byteCount: Int { frame.readableBytes }

    /// Returns an argument that shares the request's storage, at the cost of a reference count.
    @inlinable public subscript(index: Int) -> ByteBuffer {
        let span = arguments[index]
        guard let slice = frame.getSlice(at: frame.readerIndex &+ Int(span.offset), length: Int(span.length)) else {
            preconditionFailure("an argument lies within its frame")
        }
        return slice
    }

    /// Returns the request with storage of its own if the shared storage is much larger.
    public func detached() -> Request {
        guard frame.readableBytes < frame.storageCapacity / 4 else { return self }
        return Request(frame: ByteBuffer(bytes: frame.readableBytesView), arguments: arguments)
    }

    /// Zeroes the shared bytes of a request that contained a secret. Arguments needed later must be copied before.
    public func wipe() { frame.wipeReadableBytesOfAll() }

    /// Calls the body with the bytes of an argument, without a reference count. They are valid only during the call.
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

/// The position of an argument in its frame, in bytes.
@usableFromInline struct ArgumentSpan: Sendable {
    @usableFromInline let offset: UInt32
    @usableFromInline let length: UInt32

    /// Both are below 2^32, like every index of a ``NIOCore/ByteBuffer``.
    init(offset: Int, length: Int) {
        self.offset = UInt32(truncatingIfNeeded: offset)
        self.length = UInt32(truncatingIfNeeded: length)
    }
}

/// The positions of all arguments: the first eight inline, others in an array.
@usableFromInline struct ArgumentList: Sendable {
    @usableFromInline var count = 0
    @usableFromInline var first = InlineArray<8, ArgumentSpan>(repeating: ArgumentSpan(offset: 0, length: 0))
    @usableFromInline var others: [ArgumentSpan] = []

    init() {}

    mutating func append(_ span: ArgumentSpan) {
        if count < first.count {
            first[count] = span
        } else {
            others.append(span)
        }
        count &+= 1
    }

    /// Keeps the inline spans; those after ``count`` are never read.
    mutating func removeAll() {
        count = 0
        if !others.isEmpty { others = [] }
    }

    @inlinable subscript(index: Int) -> ArgumentSpan {
        precondition(index >= 0 && index < count, "an argument that the request has")
        return index < first.count ? first[index] : others[index &- first.count]
    }
}

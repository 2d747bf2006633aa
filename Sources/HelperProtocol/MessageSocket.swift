import Glibc
import LinuxSupport
import NIOCore

/// Sends and receives whole messages on a stream socket, and blocks the calling thread meanwhile.
///
/// Deadlines are milliseconds of the socket's clock, and need a non-blocking descriptor. Ignore SIGPIPE in the process.
package struct MessageSocket: Sendable {
    package let descriptor: CInt
    private let now: @Sendable () -> Int64

    /// - Parameter descriptor: the caller closes it.
    package init(
        _ descriptor: CInt, now: @escaping @Sendable () -> Int64 = { nanoseconds(of: CLOCK_MONOTONIC) / 1_000_000 }
    ) {
        (self.descriptor, self.now) = (descriptor, now)
    }

    package func deadline(in milliseconds: Int64) -> Int64 { now() + milliseconds }

    /// - Throws: ETIMEDOUT after the deadline, EPIPE if the other end closed the connection.
    package func send(
        _ message: ByteBuffer, body: ByteBuffer = ByteBuffer(), by deadline: Int64 = .max
    ) throws(SystemError) {
        try write(message, by: deadline)
        try write(body, by: deadline)
    }

    /// Receives one message, and no byte of the next.
    /// - Parameters:
    ///   - maximumBody: a longer body is an error.
    ///   - spareCapacity: bytes that the caller can append to the body without copying it.
    /// - Returns: nil if the other end closed the connection.
    /// - Throws: ``MessageError``, or ``SystemError``: ETIMEDOUT after the deadline.
    package func receive(
        maximumBody: Int = 0, spareCapacity: Int = 0, by deadline: Int64 = .max
    ) throws -> (fields: ByteBuffer, body: ByteBuffer)? {
        guard let start = try read(MessageHead.length, by: deadline),
            let head = try MessageHead(start, maximumBody: maximumBody),
            let fields = try read(head.fields, by: deadline),
            let body = try read(head.body, spareCapacity: spareCapacity, by: deadline)
        else { return nil }
        return (fields, body)
    }

    private func read(
        _ count: Int, spareCapacity: Int = 0, by deadline: Int64
    ) throws(SystemError) -> ByteBuffer? {
        var buffer = ByteBuffer()
        buffer.reserveCapacity(count + spareCapacity)
        while buffer.readableBytes < count {
            let missing = count - buffer.readableBytes
            var (received, code) = (0, CInt(0))
            buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: missing) { memory in
                received = Glibc.read(descriptor, memory.baseAddress, missing)
                code = errno
                return max(0, received)
            }
            if received == 0 { return nil }
            if received < 0 { try wait(for: POLLIN, code, by: deadline) }
        }
        return buffer
    }

    private func write(_ bytes: ByteBuffer, by deadline: Int64) throws(SystemError) {
        var rest = bytes
        while rest.readableBytes > 0 {
            let sent = rest.withUnsafeReadableBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if sent >= 0 {
                rest.moveReaderIndex(forwardBy: sent)
            } else {
                try wait(for: POLLOUT, errno, by: deadline)
            }
        }
    }

    /// Waits until the descriptor is ready if `code` is EAGAIN, returns for EINTR, and throws for other errors.
    private func wait(for events: CInt, _ code: CInt, by deadline: Int64) throws(SystemError) {
        if code == EINTR { return }
        let action = events == POLLIN ? "receive a message" : "send a message"
        guard code == EAGAIN else { throw SystemError(action, code: code) }
        let left = deadline - now()
        guard left > 0 else { throw SystemError(action, code: ETIMEDOUT) }
        var wanted = pollfd(fd: descriptor, events: Int16(events), revents: 0)
        poll(&wanted, 1, deadline == .max ? -1 : CInt(clamping: left))
    }
}

import Glibc
import HelperProtocol
import LinuxSupport
import NIOCore

/// The daemon's end of a worker's connection. Whoever holds it is alone with it; it is closed once.
struct WorkerConnection: Sendable {
    /// Milliseconds for one picture, in which a worker has ended itself: it gives a picture 10 s.
    private static var longest: Int64 { 12_000 }

    /// Milliseconds in which it greets. That takes it 15, on a machine that has nothing else to do.
    private static var longestGreeting: Int64 { 5_000 }

    /// Why a worker is given up.
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// It does not block.
    private let descriptor: CInt
    private let now: @Sendable () -> Int64

    init(_ descriptor: CInt, now: @escaping @Sendable () -> Int64) {
        (self.descriptor, self.now) = (descriptor, now)
    }

    func close() { Glibc.close(descriptor) }

    /// Has whoever waits for it fail.
    func interrupt() { shutdown(descriptor, CInt(SHUT_RDWR)) }

    /// Sends the limits and blocks until the worker has greeted.
    /// - Throws: if there is no worker, or it does not greet in time.
    func greet(_ limits: WorkerLimits) throws {
        let deadline = now() + Self.longestGreeting
        var message = ByteBuffer()
        limits.write(to: &message)
        try message.withUnsafeReadableBytes { try write($0, by: deadline) }
        let greeting = try read(1, by: deadline)
        guard greeting.getInteger(at: greeting.readerIndex) == WorkerGreeting.byte else {
            throw Failure(description: "invalid greeting from the renderer")
        }
    }

    /// Blocks until the picture is made; nil where it cannot be.
    /// - Throws: where the worker has ended, takes too long, or says what cannot be.
    func ask(_ request: RenderRequest, _ source: ByteBuffer, mostBytes: Int) throws -> ByteBuffer? {
        let deadline = now() + Self.longest
        var head = ByteBuffer()
        request.write(to: &head)
        try head.withUnsafeReadableBytes { try write($0, by: deadline) }
        try source.withUnsafeReadableBytes { try write($0, by: deadline) }
        var answerHead = try read(RenderAnswer.headLength, by: deadline)
        guard let answer = RenderAnswer(&answerHead), answer.number == request.number else {
            throw Failure(description: "its answer is none")
        }
        guard answer.outcome == .rendered else { return nil }
        guard answer.width <= request.side, answer.height <= request.side,
            request.format == .source || answer.format == request.format
        else { throw Failure(description: "it made something else than it was asked for") }
        guard answer.length <= mostBytes else { throw Failure(description: "what it made is too large") }
        return try read(answer.length, by: deadline)
    }

    private func write(_ bytes: UnsafeRawBufferPointer, by deadline: Int64) throws {
        var rest = bytes
        while !rest.isEmpty {
            let sent = send(descriptor, rest.baseAddress, rest.count, CInt(MSG_NOSIGNAL))
            if sent > 0 {
                rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(sent))
            } else {
                try wait(for: POLLOUT, errno, by: deadline)
            }
        }
    }

    private func read(_ count: Int, by deadline: Int64) throws -> ByteBuffer {
        var buffer = ByteBuffer()
        buffer.reserveCapacity(count)
        while buffer.readableBytes < count {
            let missing = count - buffer.readableBytes
            var got = 0
            buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: missing) { room in
                got = Glibc.read(descriptor, room.baseAddress, missing)
                return max(0, got)
            }
            if got == 0 { throw Failure(description: "it closed its end") }
            if got < 0 { try wait(for: POLLIN, errno, by: deadline) }
        }
        return buffer
    }

    private func wait(for events: CInt, _ code: CInt, by deadline: Int64) throws {
        if code == EINTR { return }
        guard code == EAGAIN else { throw SystemError("speak with it", code: code) }
        let left = deadline - now()
        guard left > 0 else { throw Failure(description: "it takes too long") }
        var wanted = pollfd(fd: descriptor, events: Int16(events), revents: 0)
        poll(&wanted, 1, CInt(clamping: left))
    }
}

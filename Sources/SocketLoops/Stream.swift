import CLinux
import DequeModule
import Glibc
import NIOCore

/// Who is told what becomes of a ``Stream``: on its loop, one call after another. Any of them may close the stream.
public protocol StreamHandler: AnyObject {
    /// - Parameter bytes: what came. Keeping them keeps 64 KiB.
    func received(_ bytes: ByteBuffer)
    /// The peer has said all it wants to say. It may still be reading.
    func inputEnded()
    /// Whether the stream, which is ready, may read and send now. If not, the stream asks again in each round until it
    /// may, or until the handler calls ``Stream/resume()``.
    func mayProceed() -> Bool
    /// Whether more may be sent in this round; if not, the rest waits for a later one.
    var maySend: Bool { get }
    /// The peer has taken some of what it had not.
    func outputMoved()
    /// The last call.
    /// - Parameter error: nil if this side closed it, or both have.
    func closed(_ error: IOError?)
}

extension StreamHandler {
    public func mayProceed() -> Bool { true }
    public var maySend: Bool { true }
}

/// A connected socket. Used on its loop alone.
public final class Stream: PollHandler {
    private let descriptor: CInt
    private let poller: Poller
    private let buffers: StreamBuffers
    /// Held until it has had its last call.
    public var handler: (any StreamHandler)?
    /// Called once, behind the handler's last call.
    public var whenClosed: (() -> Void)?

    /// What was written and not taken by the kernel.
    private var pending: Deque<ByteBuffer> = []
    /// How many bytes that is.
    public private(set) var unsent = 0
    /// Bytes that the kernel has taken so far.
    public private(set) var sent = 0
    /// More is sent when the kernel says so, and not before: what is written meanwhile had better be gathered.
    public private(set) var isBlocked = false

    private var hasInputEnded = false
    /// False once it is closed, by whomever.
    public private(set) var isOpen = true
    private var watched = Readiness.readable
    /// Events that ``StreamHandler/mayProceed()`` declined.
    private var deferred: Readiness = []

    init(_ descriptor: CInt, poller: Poller, buffers: StreamBuffers) {
        self.descriptor = descriptor
        self.poller = poller
        self.buffers = buffers
    }

    /// Whether what comes is read. A peer that is gone for good is noticed all the same, and closes the stream.
    public var isReading = true {
        didSet { if isReading != oldValue { watch() } }
    }

    // MARK: Writing

    /// Adds to what ``flush()`` sends.
    public func write(_ bytes: ByteBuffer) {
        guard isOpen, bytes.readableBytes > 0 else { return }
        pending.append(bytes)
        unsent += bytes.readableBytes
    }

    /// Sends what the kernel takes now. The rest goes by itself, as the peer reads.
    public func flush() {
        while unsent > 0 && !isBlocked {
            let count = send()
            if count >= 0 {
                took(count)
                // A peer may read as fast as this sends. Others have their turn.
                if unsent > 0 && handler?.maySend == false { block() }
            } else if errno == EAGAIN {
                block()
            } else if errno != EINTR {
                return close(IOError(errnoCode: errno, reason: "send"))
            }
        }
    }

    /// Sends what the kernel takes now, whether or not the handler has time left for it.
    public func flushNow() {
        isBlocked = false
        while unsent > 0 {
            let count = send()
            if count >= 0 {
                took(count)
            } else if errno == EAGAIN {
                return block()
            } else if errno != EINTR {
                return close(IOError(errnoCode: errno, reason: "send"))
            }
        }
    }

    /// Sends until no more than so many bytes are left, and blocks the loop for that: for a peer that always reads.
    public func flush(downTo most: Int) {
        flush()
        while isOpen && unsent > most {
            var writable = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            guard poll(&writable, 1, -1) >= 0 || errno == EINTR else {
                return close(IOError(errnoCode: errno, reason: "poll"))
            }
            isBlocked = false
            flush()
        }
    }

    private func block() {
        isBlocked = true
        watch()
    }

    private func send() -> Int {
        if pending.count == 1 {
            return pending[0].withUnsafeReadableBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
            }
        }
        let count = min(pending.count, buffers.spans.count)
        for index in 0..<count {
            // The bytes stay where they are for as long as the buffer is not changed, and it stands in `pending`.
            buffers.spans[index] = pending[index].withUnsafeReadableBytes {
                clinux_span(start: $0.baseAddress, length: $0.count)
            }
        }
        return clinux_send(descriptor, buffers.spans.baseAddress, count)
    }

    private func took(_ count: Int) {
        sent += count
        unsent -= count
        var rest = count
        while let length = pending.first?.readableBytes, length <= rest {
            rest -= length
            pending.removeFirst()
        }
        if rest > 0 { pending[0].moveReaderIndex(forwardBy: rest) }
    }

    // MARK: Readiness

    func ready(_ events: Readiness) {
        if events.isDisjoint(with: .gone) && handler?.mayProceed() == false { return deferred.formUnion(events) }
        proceed(events)
    }

    /// Reads and sends what ``StreamHandler/mayProceed()`` declined since the last call. Does nothing if there was
    /// nothing.
    public func resume() {
        if !deferred.isEmpty { proceed(deferred) }
    }

    private func proceed(_ events: Readiness) {
        deferred = []
        guard isOpen else { return }
        let isGone = !events.isDisjoint(with: .gone)
        if isGone || events.contains(.readable) { receiveAll(isGone: isGone) }
        if isOpen && events.contains(.writable) && handler?.maySend != false {
            isBlocked = false
            flush()
            watch()
            if isOpen { handler?.outputMoved() }
        }
        // All that it said has been read, or is not going to be; and nobody reads what it would be told.
        if isOpen && isGone { close() }
    }

    /// Reads of one stream in a row.
    private static var atOnce: Int { 4 }

    /// Reads on while there is a buffer full at once. Of a peer that is gone all is read, which is no more than the
    /// kernel has kept: it is closed before anything is done that it asked for, and that looks first whether it is
    /// still there.
    private func receiveAll(isGone: Bool = false) {
        var reads = 0
        repeat {
            guard isReading, !hasInputEnded, let count = receive() else { return }
            reads += 1
            guard isGone || (count == StreamBuffers.inputSize && reads < Self.atOnce) else { return }
        } while isOpen
    }

    /// How much came; nil if nothing did, or nothing ever will.
    private func receive() -> Int? {
        buffers.input.clear()
        var failure: CInt = 0
        let count = buffers.input.writeWithUnsafeMutableBytes(minimumWritableBytes: StreamBuffers.inputSize) { bytes in
            let count = Glibc.recv(descriptor, bytes.baseAddress, StreamBuffers.inputSize, 0)
            if count < 0 { failure = errno }
            return max(count, 0)
        }
        switch failure {
        case 0 where count > 0:
            handler?.received(buffers.input)
            buffers.forgetInput()
            return count
        case 0:
            hasInputEnded = true
            watch()
            handler?.inputEnded()
        case EAGAIN, EINTR:
            break
        default:
            close(IOError(errnoCode: failure, reason: "recv"))
        }
        return nil
    }

    /// Reads what has come by now, before the loop finds out by itself: as much of it as one stream may have in a row.
    public func receiveNow() { receiveAll() }

    private func watch() {
        guard isOpen else { return }
        var wanted: Readiness = []
        if isReading && !hasInputEnded { wanted.insert(.readable) }
        if isBlocked { wanted.insert(.writable) }
        guard wanted != watched else { return }
        watched = wanted
        do {
            try poller.change(descriptor, for: wanted)
        } catch {
            close(error as? IOError)
        }
    }

    // MARK: Closing

    /// Ends the sending side: the peer reads what was sent, and then the end. It can go on talking, and is read
    /// (shutdown(2)).
    public func endOutput() {
        // Fails for a peer that is gone alone, which the loop is told anyhow.
        if isOpen { _ = Glibc.shutdown(descriptor, CInt(SHUT_WR)) }
    }

    /// Closes the socket. What was not sent is dropped. A peer that has said something which was not read is told
    /// ECONNRESET.
    public func close() { close(nil) }

    private func close(_ error: IOError?) {
        guard isOpen else { return }
        isOpen = false
        poller.remove(descriptor)
        Glibc.close(descriptor)
        pending = []
        unsent = 0
        let (handler, whenClosed) = (handler, whenClosed)
        (self.handler, self.whenClosed) = (nil, nil)
        handler?.closed(error)
        whenClosed?()
    }
}

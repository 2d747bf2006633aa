import CLinux
import DequeModule
import Glibc
import LinuxSupport
import NIOCore

/// The user of a ``Stream``: in the daemon, `Connection` for clients and `FetcherConnection` for the fetcher. All
/// methods are called on its loop, and each may close the stream.
public protocol StreamHandler: AnyObject {
    /// - Parameter bytes: the input. Retaining the bytes retains the loop's read buffer of ``Stream/readSize`` bytes.
    func received(_ bytes: ByteBuffer)
    /// The peer has closed its output. It may still read.
    func inputEnded()
    /// Whether the ready stream may read and send now. If not, the stream retries in each round, and when the handler
    /// calls ``Stream/resume()``.
    func mayProceed() -> Bool
    /// Whether the stream may send more in this round.
    var maySend: Bool { get }
    /// The kernel has accepted pending output.
    func outputMoved()
    /// Sends the output that ``Stream/postponeSend()`` has postponed. Must not postpone it again.
    func sendPostponed()
    /// The last call.
    /// - Parameter error: nil if the stream was closed without an error.
    func closed(_ error: IOError?)
}

extension StreamHandler {
    public func sendPostponed() {}
    public func mayProceed() -> Bool { true }
    public var maySend: Bool { true }
}

/// A connected socket. Used on its loop only.
public final class Stream: PollHandler {
    private let descriptor: CInt
    private let poller: Poller
    private let buffers: StreamBuffers
    /// Retained until its last call.
    public var handler: (any StreamHandler)?
    /// Called once, after the handler's last call.
    public var whenClosed: (() -> Void)?

    /// Output that the kernel has not accepted.
    private var pending: Deque<ByteBuffer> = []
    public private(set) var unsent = 0
    public private(set) var sent = 0
    /// Whether sending waits for epoll. Small writes are better collected meanwhile.
    public private(set) var isBlocked = false

    private var hasInputEnded = false
    /// False once the stream is closed.
    public private(set) var isOpen = true
    private var watched = Readiness.readable
    /// Events postponed by ``StreamHandler/mayProceed()``.
    private var deferred: Readiness = []
    private var isSendPostponed = false

    init(_ descriptor: CInt, poller: Poller, buffers: StreamBuffers) {
        self.descriptor = descriptor
        self.poller = poller
        self.buffers = buffers
    }

    /// Whether input is read. The stream closes when the peer disconnects, in either case.
    public var isReading = true {
        didSet { if isReading != oldValue { watch() } }
    }

    /// Calls ``StreamHandler/sendPostponed()`` after all ready sockets of this round, or after its tasks if a task calls
    /// this. Sending all replies together costs less, and wakes a client with many connections less often.
    public func postponeSend() {
        guard !isSendPostponed else { return }
        isSendPostponed = true
        buffers.postponed.append(self)
    }

    func sendPostponed() {
        handler?.sendPostponed()
        isSendPostponed = false
    }

    public func write(_ bytes: ByteBuffer) {
        guard isOpen, bytes.readableBytes > 0 else { return }
        pending.append(bytes)
        unsent += bytes.readableBytes
    }

    /// Writes and flushes. Does not queue the bytes if nothing is pending and the kernel accepts all of them.
    public func send(_ bytes: ByteBuffer) {
        var rest = bytes
        if isOpen && unsent == 0 && bytes.readableBytes > 0 {
            let count = sendNow(bytes)
            if count > 0 {
                sent += count
                rest.moveReaderIndex(forwardBy: count)
            }
        }
        // After an error, `flush` tries again and handles it.
        write(rest)
        flush()
    }

    /// Sends as much as the kernel accepts. The rest follows as the peer reads.
    /// - Parameter yieldsToOthers: whether sending stops when ``StreamHandler/maySend`` is false. If not, also retries
    ///   on a blocked stream.
    public func flush(yieldsToOthers: Bool = true) {
        if !yieldsToOthers { isBlocked = false }
        while unsent > 0 && !isBlocked {
            let count = sendPending()
            if count >= 0 {
                removeSent(count)
                // A peer that reads as fast as this sends must not starve others.
                if yieldsToOthers && unsent > 0 && handler?.maySend == false { block() }
            } else if errno == EAGAIN {
                block()
            } else if errno != EINTR {
                return close(IOError(errnoCode: errno, reason: "send"))
            }
        }
    }

    /// Sends until at most `limit` bytes are pending. Blocks the loop; only for a peer that always reads.
    public func flush(downTo limit: Int) {
        flush()
        while isOpen && unsent > limit {
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

    private func sendPending() -> Int {
        if pending.count == 1 { return sendNow(pending[0]) }
        let count = min(pending.count, buffers.spans.count)
        for index in 0..<count {
            // The pointers stay valid while `pending` is not changed.
            buffers.spans[index] = pending[index].withUnsafeReadableBytes {
                clinux_span(start: $0.baseAddress, length: $0.count)
            }
        }
        return clinux_send(descriptor, buffers.spans.baseAddress, count)
    }

    private func sendNow(_ bytes: ByteBuffer) -> Int {
        bytes.withUnsafeReadableBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
    }

    private func removeSent(_ count: Int) {
        sent += count
        unsent -= count
        var rest = count
        while let length = pending.first?.readableBytes, length <= rest {
            rest -= length
            // Passed on without a second reference.
            if let sent = buffers.sent { sent.giveBack(pending.removeFirst()) } else { pending.removeFirst() }
        }
        if rest > 0 { pending[0].moveReaderIndex(forwardBy: rest) }
    }

    func ready(_ events: Readiness) {
        if events.isDisjoint(with: .gone) && handler?.mayProceed() == false { return deferred.formUnion(events) }
        proceed(events)
    }

    /// Handles events postponed by ``StreamHandler/mayProceed()``, if any.
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
        // All input is read or unwanted, and the peer reads no output.
        if isOpen && isGone { close() }
    }

    /// Bytes of one read.
    public static var readSize: Int { 64 << 10 }
    private static var maximumConsecutiveReads: Int { 4 }

    /// Reads while reads fill the buffer, within ``maximumConsecutiveReads``. Reads everything of a peer that has
    /// disconnected, which is bounded by the socket buffer: commands check whether the peer is still there before they
    /// take effect.
    private func receiveAll(isGone: Bool = false) {
        var reads = 0
        repeat {
            guard isReading, !hasInputEnded, let count = receive() else { return }
            reads += 1
            guard isGone || (count == Self.readSize && reads < Self.maximumConsecutiveReads) else { return }
        } while isOpen
    }

    /// Reads once. Returns the bytes read; nil on EAGAIN, EOF or error.
    private func receive() -> Int? {
        buffers.input.clear()
        var failure: CInt = 0
        let count = buffers.input.writeWithUnsafeMutableBytes(minimumWritableBytes: Self.readSize) { bytes in
            let count = Glibc.recv(descriptor, bytes.baseAddress, Self.readSize, 0)
            if count < 0 { failure = errno }
            return max(count, 0)
        }
        switch failure {
        case 0 where count > 0:
            handler?.received(buffers.input)
            buffers.wipeInput()
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

    /// Reads input that has arrived, without waiting for the poller, within ``maximumConsecutiveReads``.
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

    /// Closes the output (shutdown(2)). The peer reads the sent bytes and EOF, and can still send.
    public func endOutput() {
        // Fails only if the peer has disconnected, which epoll reports as well.
        if isOpen { _ = Glibc.shutdown(descriptor, CInt(SHUT_WR)) }
    }

    /// Closes the socket and discards unsent output. With unread input, the peer gets ECONNRESET.
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

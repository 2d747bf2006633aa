import CLinux
import Glibc
import Logging
import NIOCore
import Synchronization

/// A listening Unix socket. Pauses while descriptors or memory are exhausted: otherwise epoll would report the
/// connection that cannot be accepted in every round.
public final class Listener: PollHandler, Sendable {
    let descriptor: CInt
    let loop: SocketLoop
    private let log: Logger
    private let pause: TimeAmount
    private let accept: @Sendable (CInt) -> CInt
    private let next: @Sendable () -> SocketLoop
    private let accepted: @Sendable (CInt, SocketLoop) -> Void
    /// Accepted connections that have not reached their loop.
    private let waiting = Atomic<Int>(0)
    private let closed: EventLoopPromise<Void>
    // Accessed on the loop only.
    private nonisolated(unsafe) var isClosed = false
    private(set) nonisolated(unsafe) var isPaused = false
    /// Whether accepting has failed since the latest connection. Logged once per shortage.
    private nonisolated(unsafe) var isShort = false

    /// Accepted connections that wait for their loop. Beyond that they wait in the kernel, since each accepted one has a
    /// descriptor (F15).
    static var maximumWaiting: Int { 16 }

    private init(
        _ descriptor: CInt, loop: SocketLoop, log: Logger, pause: TimeAmount,
        accept: @escaping @Sendable (CInt) -> CInt, next: @escaping @Sendable () -> SocketLoop,
        accepted: @escaping @Sendable (CInt, SocketLoop) -> Void
    ) {
        (self.descriptor, self.loop, self.log, self.pause) = (descriptor, loop, log, pause)
        (self.accept, self.next, self.accepted) = (accept, next, accepted)
        closed = loop.makePromise()
    }

    /// Starts accepting connections of a listening socket.
    /// - Parameters:
    ///   - descriptor: owned by the listener; closed if this throws, for example because it is not a listening socket.
    ///   - pause: the time until the next attempt when descriptors or memory are exhausted.
    ///   - next: the loop of the next connection.
    ///   - accepted: called with each connection on its loop; owns it.
    public static func start(
        on descriptor: CInt, loop: SocketLoop, log: Logger, pause: TimeAmount = .milliseconds(100),
        accept: @escaping @Sendable (CInt) -> CInt = { clinux_accept($0) },
        next: @escaping @Sendable () -> SocketLoop, accepted: @escaping @Sendable (CInt, SocketLoop) -> Void
    ) async throws -> Listener {
        let listener = Listener(
            descriptor, loop: loop, log: log, pause: pause, accept: accept, next: next, accepted: accepted)
        do {
            guard fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else {
                throw IOError(errnoCode: errno, reason: "fcntl: make descriptor \(descriptor) non-blocking")
            }
            var listens: CInt = 0
            var size = socklen_t(MemoryLayout<CInt>.size)
            guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0, listens == 1 else {
                throw IOError(errnoCode: EINVAL, reason: "descriptor \(descriptor) is not a listening socket")
            }
            try await loop.submit { try loop.poller.add(descriptor, for: .readable, listener) }.get()
        } catch {
            Glibc.close(descriptor)
            listener.closed.succeed()
            throw error
        }
        return listener
    }

    func ready(_ events: Readiness) {
        // Accepting connections is not charged to any account.
        defer { loop.round.beginLap(at: .now()) }
        // epoll reports EPOLLHUP and EPOLLERR although no events are watched. The socket cannot recover.
        if isPaused && !events.isDisjoint(with: .gone) { return closeAfterError() }
        // Not until EAGAIN, so that other sockets of the loop are handled.
        for _ in 0..<Self.maximumWaiting {
            guard !isClosed, waiting.load(ordering: .relaxed) < Self.maximumWaiting else { return }
            let connection = accept(descriptor)
            guard connection < 0 else {
                if isShort { log.notice("accepting connections again") }
                isShort = false
                dispatch(connection)
                continue
            }
            switch errno {
            case EAGAIN: return
            // The peer has closed before the accept.
            case EINTR, ECONNABORTED: continue
            case EINVAL, EBADF, ENOTSOCK, EOPNOTSUPP:
                return closeAfterError()
            default: return startPause()
            }
        }
    }

    private func dispatch(_ connection: CInt) {
        let target = next()
        waiting.add(1, ordering: .relaxed)
        target.execute { [self] in
            waiting.subtract(1, ordering: .relaxed)
            accepted(connection, target)
        }
    }

    private func closeAfterError() {
        log.error("the socket no longer accepts connections", metadata: ["error": "\(errorName)"])
        close()
    }

    private var errorName: String { IOError(errnoCode: errno, reason: "accept").description }

    private func startPause() {
        let error = errorName
        if !isShort {
            log.warning("cannot accept connections; retrying", metadata: ["error": "\(error)"])
        }
        (isPaused, isShort) = (true, true)
        watch(for: [])
        loop.scheduleTask(in: pause) {
            self.isPaused = false
            self.watch(for: .readable)
        }
    }

    private func watch(for events: Readiness) {
        guard !isClosed else { return }
        do {
            try loop.poller.change(descriptor, for: events)
        } catch {
            log.error("cannot watch the socket", metadata: ["error": "\(error)"])
            close()
        }
    }

    public func whenClosed(_ body: @escaping @Sendable () -> Void) { closed.futureResult.whenSuccess(body) }

    /// Closes the listener. Returns once no peer can connect.
    public func stop() async throws { try await loop.submit { self.close() }.get() }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        loop.poller.remove(descriptor)
        Glibc.close(descriptor)
        closed.succeed()
    }
}

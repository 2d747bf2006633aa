import CLinux
import Glibc
import Logging
import NIOCore

/// A Unix socket that others connect to. Takes them as they come, and pauses when descriptors or memory are short: else
/// its loop would be woken at once for the connection that it could not take, again and again.
public final class Listener: PollHandler, Sendable {
    let descriptor: CInt
    let loop: SocketLoop
    private let log: Logger
    private let pause: TimeAmount
    private let accept: @Sendable (CInt) -> CInt
    private let taken: @Sendable (CInt) -> Void
    private let closed: EventLoopPromise<Void>
    // Touched on the loop alone.
    private nonisolated(unsafe) var isClosed = false
    /// Whether it takes no connections for a moment.
    private(set) nonisolated(unsafe) var isPaused = false
    /// Since the last connection that was taken, one could not be: told once, however long it lasts.
    private nonisolated(unsafe) var isShort = false

    /// Connections taken before other sockets have their turn.
    private static var atOnce: Int { 64 }

    private init(
        _ descriptor: CInt, loop: SocketLoop, log: Logger, pause: TimeAmount,
        accept: @escaping @Sendable (CInt) -> CInt, taken: @escaping @Sendable (CInt) -> Void
    ) {
        self.descriptor = descriptor
        self.loop = loop
        self.log = log
        self.pause = pause
        self.accept = accept
        self.taken = taken
        closed = loop.makePromise()
    }

    /// Starts taking connections of a socket that listens, whoever made it.
    /// - Parameters:
    ///   - descriptor: is the listener's from now on, and is closed should this fail.
    ///   - pause: when descriptors or memory are short, until it tries again.
    ///   - accept: accept4(2) for a socket that does not block and is closed on exec.
    ///   - taken: gets each connection, on `loop`, and owns it.
    /// - Throws: ``IOError`` if it is none.
    public static func start(
        on descriptor: CInt, loop: SocketLoop, log: Logger, pause: TimeAmount = .milliseconds(100),
        accept: @escaping @Sendable (CInt) -> CInt = { clinux_accept($0) },
        taken: @escaping @Sendable (CInt) -> Void
    ) async throws -> Listener {
        let listener = Listener(descriptor, loop: loop, log: log, pause: pause, accept: accept, taken: taken)
        do {
            guard fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else {
                throw IOError(errnoCode: errno, reason: "fcntl: let descriptor \(descriptor) not block")
            }
            var listens: CInt = 0
            var size = socklen_t(MemoryLayout<CInt>.size)
            guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0, listens == 1 else {
                throw IOError(errnoCode: EINVAL, reason: "descriptor \(descriptor), which does not listen")
            }
            try await loop.submit { try loop.poller.add(descriptor, for: .readable, listener) }.get()
        } catch {
            Glibc.close(descriptor)
            listener.closed.succeed()
            throw error
        }
        return listener
    }

    // MARK: Connections

    func ready(_ events: Readiness) {
        // To let connections in is nobody's work.
        defer { loop.round.beginLap(at: .now()) }
        // Not watched for, and it will not get better.
        if isPaused && !events.isDisjoint(with: .gone) { return giveUp() }
        for _ in 0..<Self.atOnce {
            guard !isClosed else { return }
            let connection = accept(descriptor)
            guard connection < 0 else {
                if isShort { log.notice("connections are accepted again") }
                isShort = false
                taken(connection)
                continue
            }
            switch errno {
            case EAGAIN: return
            // The peer was gone before its turn came.
            case EINTR, ECONNABORTED: continue
            case EINVAL, EBADF, ENOTSOCK, EOPNOTSUPP:
                return giveUp()
            default: return startPause()
            }
        }
    }

    /// The system has given it up, or somebody has shut it down.
    private func giveUp() {
        log.error("the socket takes no connections any more", metadata: ["error": "\(errorName)"])
        close()
    }

    private var errorName: String { IOError(errnoCode: errno, reason: "accept").description }

    private func startPause() {
        let error = errorName
        if !isShort {
            log.warning("no connection can be accepted for now; trying again", metadata: ["error": "\(error)"])
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
            log.error("the socket cannot be watched", metadata: ["error": "\(error)"])
            close()
        }
    }

    // MARK: The end

    /// Calls `body` when it is closed, by whomever; soon if it is already.
    public func whenClosed(_ body: @escaping @Sendable () -> Void) { closed.futureResult.whenSuccess(body) }

    /// Takes no more connections; returns when nobody can connect. What is closed stays closed.
    public func stop() async throws { try await loop.submit { self.close() }.get() }

    /// On the loop only.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        loop.poller.remove(descriptor)
        Glibc.close(descriptor)
        closed.succeed()
    }
}

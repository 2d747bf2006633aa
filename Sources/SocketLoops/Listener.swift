import CLinux
import Glibc
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// A Unix socket that others connect to. Takes them as they come, and pauses when descriptors or memory are short: else its loop
/// would be woken at once for the connection that it could not take, again and again.
public final class Listener: PollHandler, Sendable {
    private struct State {
        var isPaused = false
        /// Since the last connection that was taken, one could not be: told once, however long it lasts.
        var isShort = false
        var isClosed = false
        var whenClosed: [@Sendable () -> Void] = []
    }

    let descriptor: CInt
    let loop: SocketLoop
    private let log: Logger
    private let accept: @Sendable (CInt) -> CInt
    private let taken: @Sendable (CInt) -> Void
    private let state = NIOLockedValueBox(State())

    static var pause: TimeAmount { .milliseconds(100) }
    /// Connections taken before other sockets have their turn.
    private static var atOnce: Int { 64 }

    private init(
        _ descriptor: CInt, loop: SocketLoop, log: Logger, accept: @escaping @Sendable (CInt) -> CInt,
        taken: @escaping @Sendable (CInt) -> Void
    ) {
        self.descriptor = descriptor
        self.loop = loop
        self.log = log
        self.accept = accept
        self.taken = taken
    }

    /// Starts taking connections of a socket that listens, whoever made it.
    /// - Parameters:
    ///   - descriptor: is the listener's from now on, and is closed should this fail.
    ///   - accept: accept4(2) for a socket that does not block and is closed on exec.
    ///   - taken: gets each connection, on `loop`, and owns it.
    /// - Throws: ``IOError`` if it is none.
    public static func start(
        on descriptor: CInt, loop: SocketLoop, log: Logger,
        accept: @escaping @Sendable (CInt) -> CInt = { clinux_accept($0) },
        taken: @escaping @Sendable (CInt) -> Void
    ) async throws -> Listener {
        let listener = Listener(descriptor, loop: loop, log: log, accept: accept, taken: taken)
        do {
            guard fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else {
                throw IOError(errnoCode: errno, reason: "fcntl: let descriptor \(descriptor) not block")
            }
            var listens: CInt = 0
            var size = socklen_t(MemoryLayout<CInt>.size)
            guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0, listens == 1 else {
                throw IOError(errnoCode: EINVAL, reason: "descriptor \(descriptor), which does not listen")
            }
            try await loop.submit { try loop.watch(descriptor, for: .readable, listener) }.get()
        } catch {
            Glibc.close(descriptor)
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
                tookOne()
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

    private func tookOne() {
        let wasShort = state.withLockedValue { state in
            defer { state.isShort = false }
            return state.isShort
        }
        if wasShort { log.notice("connections are accepted again") }
    }

    private func startPause() {
        let error = errorName
        let isNews = state.withLockedValue { state in
            defer {
                state.isPaused = true
                state.isShort = true
            }
            return !state.isShort
        }
        if isNews {
            log.warning("no connection can be accepted for now; trying again", metadata: ["error": "\(error)"])
        }
        watch(for: [])
        loop.scheduleTask(in: Self.pause) {
            self.state.withLockedValue { $0.isPaused = false }
            self.watch(for: .readable)
        }
    }

    private func watch(for events: Readiness) {
        guard !isClosed else { return }
        do {
            try loop.watch(descriptor, for: events)
        } catch {
            log.error("the socket cannot be watched", metadata: ["error": "\(error)"])
            close()
        }
    }

    /// Whether it takes no connections for a moment.
    var isPaused: Bool { state.withLockedValue { $0.isPaused } }

    // MARK: The end

    private var isClosed: Bool { state.withLockedValue { $0.isClosed } }

    /// Calls `body` when it is closed, by whomever; at once if it is already.
    public func whenClosed(_ body: @escaping @Sendable () -> Void) {
        let isClosed = state.withLockedValue { state in
            if !state.isClosed { state.whenClosed.append(body) }
            return state.isClosed
        }
        if isClosed { body() }
    }

    /// Takes no more connections; returns when nobody can connect. What is closed stays closed.
    public func stop() async throws {
        try await loop.submit { self.close() }.get()
    }

    /// On the loop only.
    func close() {
        let bodies = state.withLockedValue { state -> [@Sendable () -> Void]? in
            guard !state.isClosed else { return nil }
            state.isClosed = true
            defer { state.whenClosed = [] }
            return state.whenClosed
        }
        guard let bodies else { return }
        loop.forget(descriptor)
        Glibc.close(descriptor)
        for body in bodies { body() }
    }
}

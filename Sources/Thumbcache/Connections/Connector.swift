import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ThumbcacheProtocol

/// Opens connections while the client runs, and tracks those that are open.
///
/// After a failed attempt, further attempts wait for a pause (``Backoff``) and fail if the next one fails, so that
/// requests do not wait indefinitely.
final class Connector: Sendable {
    private enum Phase {
        case waiting([OneShot<any EventLoop>])
        case running(any EventLoop)
        case stopped
    }

    private struct State {
        var phase = Phase.waiting([])
        /// Failed attempts since the last successful one.
        var failures = 0
        var nextAttempt = NIODeadline.uptimeNanoseconds(0)
        /// Tasks that wait for the next attempt.
        var pausing: [ObjectIdentifier: OneShot<Void>] = [:]
        var open: [ObjectIdentifier: any Channel] = [:]
    }

    private let path: String
    private let configuration: ThumbcacheConfiguration
    private let logger: Logger
    private let inFlight: InFlight
    private let state = NIOLockedValueBox(State())

    init(path: String, configuration: ThumbcacheConfiguration, logger: Logger, inFlight: InFlight) {
        self.inFlight = inFlight
        self.path = path
        self.configuration = configuration
        self.logger = logger
    }

    // MARK: Start and stop

    func start(_ loop: any EventLoop) {
        let waiting: [OneShot<any EventLoop>] = state.withLockedValue { state in
            guard case .waiting(let waiting) = state.phase else { return [] }
            state.phase = .running(loop)
            return waiting
        }
        for one in waiting { one.resolve(.success(loop)) }
    }

    func stop() async {
        let (starting, pausing, open) = state.withLockedValue { state in
            let starting = if case .waiting(let waiting) = state.phase { waiting } else { [OneShot<any EventLoop>]() }
            defer { (state.phase, state.pausing) = (.stopped, [:]) }
            return (starting, state.pausing, state.open)
        }
        for one in starting { one.resolve(.failure(.notRunning)) }
        for one in pausing.values { one.resolve(.failure(.notRunning)) }
        for channel in open.values {
            channel.close(promise: nil)
            await withCheckedContinuation { done in channel.closeFuture.whenComplete { _ in done.resume() } }
        }
    }

    var isStopped: Bool {
        state.withLockedValue { state in if case .stopped = state.phase { true } else { false } }
    }

    private func loop() async throws(ThumbcacheError) -> any EventLoop {
        let started = OneShot<any EventLoop>()
        state.withLockedValue { state in
            switch state.phase {
            case .waiting(let others):
                // Removes cancelled tasks, which would accumulate in a client that never runs.
                state.phase = .waiting(others.filter { !$0.isResolved } + [started])
            case .running(let loop): started.resolve(.success(loop))
            case .stopped: started.resolve(.failure(.notRunning))
            }
        }
        return try await started.wait().get()
    }

    // MARK: Connections

    /// Opens a connection and checks by HELLO that the server is thumbcached.
    /// - Parameter onPush: see ``ReplyHandler``.
    func open(onPush: (@Sendable (Value) -> Void)? = nil) async throws(ThumbcacheError) -> WireConnection {
        // Counted even without a request, so that the event loop outlives the attempt.
        try inFlight.begin()
        defer { inFlight.end() }
        let loop = try await loop()
        try await pause(loop)
        let before = state.withLockedValue { $0.failures }
        do throws(ThumbcacheError) {
            let connection = try await within(configuration.connectTimeout) { () async throws(ThumbcacheError) in
                try await self.attempt(loop, onPush)
            }
            let pausing = state.withLockedValue { state in
                state.failures = 0
                return state.pausing.values
            }
            // The daemon responds, so pauses end.
            for one in pausing { one.resolve(.success(())) }
            return connection
        } catch {
            if error != .cancelled { failed(error, after: before) }
            throw error
        }
    }

    /// - Parameter before: the number of failures when the attempt began. Concurrent failures count once.
    private func failed(_ error: ThumbcacheError, after before: Int) {
        let backoff = configuration.backoff
        let (failures, pause) = state.withLockedValue { state in
            guard state.failures == before else { return (state.failures, Duration.zero) }
            state.failures += 1
            let pause = backoff.pause(after: state.failures, random: Double.random(in: 0...1))
            state.nextAttempt = .now() + TimeAmount(pause)
            return (state.failures, pause)
        }
        logger.debug(
            "connecting failed", metadata: ["failures": "\(failures)", "pause": "\(pause)", "error": "\(error)"])
    }

    private func pause(_ loop: any EventLoop) async throws(ThumbcacheError) {
        let turn = OneShot<Void>()
        let due: NIODeadline? = state.withLockedValue { state in
            if case .stopped = state.phase { turn.resolve(.failure(.notRunning)) }
            guard state.failures > 0, state.nextAttempt > .now() else { return nil }
            state.pausing[ObjectIdentifier(turn)] = turn
            return state.nextAttempt
        }
        guard let due else { return }
        let timer = loop.scheduleTask(deadline: due) { _ = turn.resolve(.success(())) }
        let outcome = await turn.wait()
        timer.cancel()
        _ = state.withLockedValue { $0.pausing.removeValue(forKey: ObjectIdentifier(turn)) }
        try outcome.get()
    }

    private func attempt(
        _ loop: any EventLoop, _ onPush: (@Sendable (Value) -> Void)?
    ) async throws(ThumbcacheError) -> WireConnection {
        let connection = try await connected(loop, onPush)
        do throws(ThumbcacheError) {
            try await greet(connection)
            return connection
        } catch {
            connection.close()
            throw error
        }
    }

    private func greet(_ connection: WireConnection) async throws(ThumbcacheError) {
        let hello = try await connection.reply(to: ThumbcacheRequest("HELLO", "3"), closing: true).orServerError()
        let name = hello[HelloKey.server.rawValue]?.text
        guard name == "thumbcached" else { throw .notThumbcached(name: name) }
        guard let library = configuration.libraryName else { return }
        for (key, value) in [("LIB-NAME", library), ("LIB-VER", Version.current)] {
            // Informational, for CLIENT LIST; errors are ignored.
            let words = words("CLIENT", "SETINFO", key, value)
            _ = try await connection.reply(to: ThumbcacheRequest(words), closing: true)
        }
    }
}

// MARK: - Channels

extension Connector {
    private func connected(
        _ loop: any EventLoop, _ onPush: (@Sendable (Value) -> Void)?
    ) async throws(ThumbcacheError) -> WireConnection {
        var attempts = 0
        while true {
            attempts += 1
            let connected = OneShot<WireConnection>()
            connect(loop, onPush, connected)
            switch await connected.wait() {
            case .success(let connection): return connection
            // The listen queue is full. A blocking connect(2) would wait; a non-blocking one fails with EAGAIN.
            case .failure(.unreachable(_, EAGAIN)):
                let retry = OneShot<Void>()
                let pause = TimeAmount(
                    Backoff(first: .milliseconds(2), longest: .milliseconds(200))
                        .pause(after: attempts, random: Double.random(in: 0...1)))
                let timer = loop.scheduleTask(in: pause) { _ = retry.resolve(.success(())) }
                let outcome = await retry.wait()
                timer.cancel()
                try outcome.get()
            case .failure(let error): throw error
            }
        }
    }

    /// If the task gives up first, the channel is closed when it has been connected.
    private func connect(
        _ loop: any EventLoop, _ onPush: (@Sendable (Value) -> Void)?, _ connected: OneShot<WireConnection>
    ) {
        guard path.utf8.count <= UnixAddress.longestPath else {
            connected.resolve(.failure(.unreachable(path: path, errno: ENAMETOOLONG)))
            return
        }
        let bootstrap = ClientBootstrap(group: loop).channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(ReplyHandler(onPush: onPush))
            }
        }
        bootstrap.connect(unixDomainSocketPath: path).whenComplete { [path] result in
            switch result {
            case .success(let channel):
                if !self.register(channel) {
                    connected.resolve(.failure(.notRunning))
                    channel.close(promise: nil)
                } else {
                    self.deliver(channel, to: connected)
                }
            case .failure(let error as IOError):
                connected.resolve(.failure(.unreachable(path: path, errno: error.errnoCode)))
            case .failure:
                // The event loop was shut down, or the connection broke at once.
                connected.resolve(.failure(self.isStopped ? .notRunning : .connectionLost))
            }
        }
    }

    /// On the channel's event loop.
    private func deliver(_ channel: any Channel, to connected: OneShot<WireConnection>) {
        do {
            if connected.resolve(.success(try WireConnection(over: channel))) { return }
        } catch {
            // The connection broke at once, and its handler was removed.
            connected.resolve(.failure(.connectionLost))
        }
        channel.close(promise: nil)
    }

    private func register(_ channel: any Channel) -> Bool {
        let key = ObjectIdentifier(channel)
        let isRunning = state.withLockedValue { state in
            guard case .running = state.phase else { return false }
            state.open[key] = channel
            return true
        }
        guard isRunning else { return false }
        channel.closeFuture.whenComplete { _ in _ = self.state.withLockedValue { $0.open.removeValue(forKey: key) } }
        return true
    }
}

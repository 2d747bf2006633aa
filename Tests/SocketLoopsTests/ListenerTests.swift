import CLinux
import Dispatch
import Glibc
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite(.timeLimit(.minutes(5))) struct ListenerTests {
    /// Errors that accept4 returns before it is called.
    private let failures = NIOLockedValueBox<[CInt]>([])
    private let calls = NIOLockedValueBox(0)
    /// Connections that accept4 has returned, and those that have reached their loop.
    private let returnedCount = NIOLockedValueBox(0)
    private let acceptedCount = NIOLockedValueBox(0)

    /// - Parameter target: the loop of the connections; by default that of the listener.
    private func withListener(
        pause: TimeAmount = .milliseconds(100), target: SocketLoop? = nil,
        _ body: (Listener, sockaddr_un, socklen_t) async throws -> Void
    ) async throws {
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        // The kernel chooses an abstract name: unix(7), autobind.
        try #require(address.withPointer { bind(descriptor, $0, socklen_t(MemoryLayout<sa_family_t>.size)) } == 0)
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        try #require(address.withPointer { getsockname(descriptor, $0, &length) } == 0)
        try #require(listen(descriptor, 10) == 0)
        let loop = try SocketLoop()
        let listener = try await Listener.start(
            on: descriptor, loop: loop, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, pause: pause
        ) { [failures, calls, returnedCount] descriptor in
            calls.withLockedValue { $0 += 1 }
            guard let failure = failures.withLockedValue({ $0.isEmpty ? nil : $0.removeFirst() }) else {
                let connection = clinux_accept(descriptor)
                if connection >= 0 { returnedCount.withLockedValue { $0 += 1 } }
                return connection
            }
            errno = failure
            return -1
        } next: {
            target ?? loop
        } accepted: { [acceptedCount] connection, _ in
            acceptedCount.withLockedValue { $0 += 1 }
            close(connection)
        }
        do {
            try await body(listener, address, length)
        } catch {
            try await loop.shutdownGracefully()
            throw error
        }
        try await loop.shutdownGracefully()
    }

    private func isPaused(_ listener: Listener) async throws -> Bool {
        try await listener.loop.submit { listener.isPaused }.get()
    }

    private func connect(_ address: sockaddr_un, _ length: socklen_t) -> CInt {
        var address = address
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(descriptor) }
        return address.withPointer { Glibc.connect(descriptor, $0, length) }
    }

    @Test func `all waiting connections are accepted`() async throws {
        try await withListener { listener, address, length in
            for _ in 0..<200 { #expect(connect(address, length) == 0) }
            try await eventually { acceptedCount.withLockedValue { $0 } == 200 }
            #expect(try await !isPaused(listener))
        }
    }

    @Test func `F15: few connections are accepted while their loop is busy`() async throws {
        let target = try SocketLoop()
        let isBusy = DispatchSemaphore(value: 0)
        target.execute { isBusy.wait() }
        try await withListener(target: target) { listener, address, length in
            for _ in 0..<20 { #expect(connect(address, length) == 0) }
            try await eventually { returnedCount.withLockedValue { $0 } == 16 }
            // In each of these rounds, epoll reports the other four.
            for _ in 0..<10 { try await listener.loop.submit {}.get() }
            #expect(returnedCount.withLockedValue { $0 } == 16 && acceptedCount.withLockedValue { $0 } == 0)
            isBusy.signal()
            try await eventually { acceptedCount.withLockedValue { $0 } == 20 }
        }
        try await target.shutdownGracefully()
    }

    @Test(arguments: [EMFILE, ENFILE, ENOBUFS, ENOMEM])
    func `F15: accepting pauses without descriptors, and resumes`(_ code: CInt) async throws {
        try await withListener { listener, address, length in
            failures.withLockedValue { $0 = [code] }
            #expect(connect(address, length) == 0)
            try await eventually {
                guard acceptedCount.withLockedValue({ $0 }) == 1 else { return false }
                return try await !isPaused(listener)
            }
            // The failed call, the successful one, and the one that returned EAGAIN.
            #expect(calls.withLockedValue { $0 } == 3)
        }
    }

    @Test func `F15: the loop sleeps while descriptors are exhausted`() async throws {
        try await withListener(pause: .hours(1)) { listener, address, length in
            failures.withLockedValue { $0 = [EMFILE] }
            #expect(connect(address, length) == 0)
            try await eventually { try await isPaused(listener) }
            // Each round polls once, and this connection could be accepted by now.
            for _ in 0..<100 { try await listener.loop.submit {}.get() }
            #expect(calls.withLockedValue { $0 } == 1 && acceptedCount.withLockedValue { $0 } == 0)
        }
    }

    @Test(arguments: [ECONNABORTED, EINTR])
    func `a connection that closed before its accept causes no pause`(_ code: CInt) async throws {
        try await withListener { listener, address, length in
            failures.withLockedValue { $0 = [code] }
            #expect(connect(address, length) == 0)
            try await eventually { acceptedCount.withLockedValue { $0 } == 1 }
            #expect(try await !isPaused(listener))
        }
    }

    @Test func `an invalid socket is closed and reported`() async throws {
        try await withListener { listener, address, length in
            let closings = NIOLockedValueBox(0)
            listener.whenClosed { closings.withLockedValue { $0 += 1 } }
            failures.withLockedValue { $0 = [EINVAL] }
            #expect(connect(address, length) == 0)
            try await eventually { closings.withLockedValue { $0 } == 1 }
            listener.whenClosed { closings.withLockedValue { $0 += 1 } }
            try await eventually { closings.withLockedValue { $0 } == 2 }
            #expect(connect(address, length) == -1 && errno == ECONNREFUSED)
        }
    }

    @Test func `a socket that is shut down during a pause is closed`() async throws {
        try await withListener(pause: .hours(1)) { listener, address, length in
            let closings = NIOLockedValueBox(0)
            listener.whenClosed { closings.withLockedValue { $0 += 1 } }
            failures.withLockedValue { $0 = [EMFILE] }
            #expect(connect(address, length) == 0)
            try await eventually { try await isPaused(listener) }
            #expect(shutdown(listener.descriptor, CInt(SHUT_RDWR)) == 0)
            try await eventually { closings.withLockedValue { $0 } == 1 }
            #expect(connect(address, length) == -1 && errno == ECONNREFUSED)
        }
    }

    @Test func `no peer can connect after one or two stops`() async throws {
        try await withListener { listener, address, length in
            try await listener.stop()
            try await listener.stop()
            #expect(connect(address, length) == -1 && errno == ECONNREFUSED)
        }
    }

    @Test func `a descriptor that does not listen is an error and closed`() async throws {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let near = ends[0]
        await #expect(throws: IOError.self) {
            _ = try await Listener.start(
                on: near, loop: loop, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
                next: { loop }, accepted: { _, _ in })
        }
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, 0) == 0)
        close(ends[1])
        try await loop.shutdownGracefully()
    }
}

extension sockaddr_un {
    fileprivate mutating func withPointer(_ body: (UnsafeMutablePointer<sockaddr>) -> CInt) -> CInt {
        withUnsafeMutablePointer(to: &self) { $0.withMemoryRebound(to: sockaddr.self, capacity: 1, body) }
    }
}

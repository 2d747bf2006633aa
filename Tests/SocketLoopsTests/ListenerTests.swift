import CLinux
import Glibc
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite(.timeLimit(.minutes(5))) struct ListenerTests {
    /// What accept4 answers before it is asked itself.
    private let failures = NIOLockedValueBox<[CInt]>([])
    private let calls = NIOLockedValueBox(0)
    private let taken = NIOLockedValueBox(0)

    private func withListener(
        pause: TimeAmount = .milliseconds(100), _ body: (Listener, sockaddr_un, socklen_t) async throws -> Void
    ) async throws {
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        // The kernel finds it a name that no file system knows: unix(7), autobind.
        try #require(address.asked { bind(descriptor, $0, socklen_t(MemoryLayout<sa_family_t>.size)) } == 0)
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        try #require(address.asked { getsockname(descriptor, $0, &length) } == 0)
        try #require(listen(descriptor, 10) == 0)
        let loop = try SocketLoop()
        let listener = try await Listener.start(
            on: descriptor, loop: loop, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, pause: pause
        ) { [failures, calls] descriptor in
            calls.withLockedValue { $0 += 1 }
            guard let failure = failures.withLockedValue({ $0.isEmpty ? nil : $0.removeFirst() }) else {
                return clinux_accept(descriptor)
            }
            errno = failure
            return -1
        } taken: { [taken] connection in
            taken.withLockedValue { $0 += 1 }
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
        return address.asked { Glibc.connect(descriptor, $0, length) }
    }

    @Test func `every connection is taken, also of many that wait`() async throws {
        try await withListener { listener, address, length in
            for _ in 0..<200 { #expect(connect(address, length) == 0) }
            try await eventually { taken.withLockedValue { $0 } == 200 }
            #expect(try await !isPaused(listener))
        }
    }

    @Test(arguments: [EMFILE, ENFILE, ENOBUFS, ENOMEM])
    func `F15: with descriptors short accepting pauses, and goes on by itself`(_ code: CInt) async throws {
        try await withListener { listener, address, length in
            failures.withLockedValue { $0 = [code] }
            #expect(connect(address, length) == 0)
            try await eventually {
                guard taken.withLockedValue({ $0 }) == 1 else { return false }
                return try await !isPaused(listener)
            }
            // The one that failed, the one that took it, and the one that found no more.
            #expect(calls.withLockedValue { $0 } == 3)
        }
    }

    @Test func `F15: while descriptors stay short the loop is not woken again and again`() async throws {
        try await withListener(pause: .hours(1)) { listener, address, length in
            failures.withLockedValue { $0 = [EMFILE] }
            #expect(connect(address, length) == 0)
            try await eventually { try await isPaused(listener) }
            // Each round looks at the sockets once, and this one could be taken by now.
            for _ in 0..<100 { try await listener.loop.submit {}.get() }
            #expect(calls.withLockedValue { $0 } == 1 && taken.withLockedValue { $0 } == 0)
        }
    }

    @Test(arguments: [ECONNABORTED, EINTR])
    func `a connection that was gone before it was accepted pauses nothing`(_ code: CInt) async throws {
        try await withListener { listener, address, length in
            failures.withLockedValue { $0 = [code] }
            #expect(connect(address, length) == 0)
            try await eventually { taken.withLockedValue { $0 } == 1 }
            #expect(try await !isPaused(listener))
        }
    }

    @Test func `a socket that the system gives up is closed, and everybody told`() async throws {
        try await withListener { listener, address, length in
            let told = NIOLockedValueBox(0)
            listener.whenClosed { told.withLockedValue { $0 += 1 } }
            failures.withLockedValue { $0 = [EINVAL] }
            #expect(connect(address, length) == 0)
            try await eventually { told.withLockedValue { $0 } == 1 }
            listener.whenClosed { told.withLockedValue { $0 += 1 } }
            try await eventually { told.withLockedValue { $0 } == 2 }
            #expect(connect(address, length) == -1 && errno == ECONNREFUSED)
        }
    }

    @Test func `a socket that is shut down while accepting pauses is given up, too`() async throws {
        try await withListener(pause: .hours(1)) { listener, address, length in
            let told = NIOLockedValueBox(0)
            listener.whenClosed { told.withLockedValue { $0 += 1 } }
            failures.withLockedValue { $0 = [EMFILE] }
            #expect(connect(address, length) == 0)
            try await eventually { try await isPaused(listener) }
            #expect(shutdown(listener.descriptor, CInt(SHUT_RDWR)) == 0)
            try await eventually { told.withLockedValue { $0 } == 1 }
            #expect(connect(address, length) == -1 && errno == ECONNREFUSED)
        }
    }

    @Test func `nobody can connect once it has been stopped, twice or once`() async throws {
        try await withListener { listener, address, length in
            try await listener.stop()
            try await listener.stop()
            #expect(connect(address, length) == -1 && errno == ECONNREFUSED)
        }
    }

    @Test func `what does not listen is refused and closed`() async throws {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let near = ends[0]
        await #expect(throws: IOError.self) {
            _ = try await Listener.start(
                on: near, loop: loop, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
                taken: { _ in })
        }
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, 0) == 0)
        close(ends[1])
        try await loop.shutdownGracefully()
    }
}

extension sockaddr_un {
    fileprivate mutating func asked(_ body: (UnsafeMutablePointer<sockaddr>) -> CInt) -> CInt {
        withUnsafeMutablePointer(to: &self) { $0.withMemoryRebound(to: sockaddr.self, capacity: 1, body) }
    }
}

import Foundation
import LinuxSupport
import Testing

@testable import ProgramSupport
@testable import thumbcached

@Suite struct ListeningSocketTests {
    /// A socket in a temporary directory with existing files.
    private func refusal(owner: UInt32 = geteuid(), _ prepare: (_ path: String) throws -> Void) throws -> String? {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            try prepare(path)
            let before = try FileIdentity.of(path)
            let error = #expect(throws: ListeningSocketFailure.self) {
                try makeSocket(path, owner: owner)
            }
            #expect(try FileIdentity.of(path) == before, "the existing file was replaced")
            #expect(try FileIdentity.of(path + ".lock") == nil)
            return error?.description.replacing(directory, with: "DIR")
        }
    }

    private func makeSocket(
        _ path: String, mode: UInt32 = 0o666, owner: UInt32 = geteuid()
    ) throws -> ListeningSocket {
        try ListeningSocket(path: path, mode: mode, setting: "socket.path", owner: owner)
    }

    private func mode(_ path: String) -> mode_t? {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : nil
    }

    @Test func `the socket listens with its mode, and is removed with its lock file`() throws {
        try Fixture.withDirectory { directory in
            for permissions in [0o600, 0o666, 0o660] as [UInt32] {
                let path = "\(directory)/run/s"
                try makeDirectories("\(directory)/run", mode: 0o755)
                let socket = try makeSocket(path, mode: permissions)
                #expect(mode(path) == permissions)
                #expect(fcntl(socket.descriptor, F_GETFD) == FD_CLOEXEC)
                let (client, code) = try UnixSocket.connect(path)
                #expect(code == 0)
                close(client)

                #expect(try socket.remove())
                close(socket.descriptor)
                #expect(try FileManager.default.contentsOfDirectory(atPath: "\(directory)/run") == [])
            }
        }
    }

    @Test func `F49: a stale socket of the program's user is replaced`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            // The state after a kill: socket and lock file exist, without listener and lock.
            close(try UnixSocket.listen(path))
            try Data().write(to: URL(filePath: path + ".lock"))
            let stale = try FileIdentity.of(path)
            #expect(try UnixSocket.connect(path).code == ECONNREFUSED)

            let socket = try makeSocket(path)
            defer { close(socket.descriptor) }
            #expect(try FileIdentity.of(path) != stale)
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            close(client)
            #expect(try socket.remove())
        }
    }

    @Test func `F49: a socket with a listener is not replaced`() throws {
        var listener: Int32 = -1
        let reason = try refusal { listener = try UnixSocket.listen($0) }
        close(listener)
        #expect(reason == "DIR/s is in use: another process listens on it; stop that process, or set socket.path")
    }

    @Test func `F49: a socket with a full backlog is not replaced`() throws {
        var open: [Int32] = []
        let reason = try refusal { path in
            let listener = try UnixSocket.bind(path)
            open.append(listener)
            try #require(listen(listener, 0) == 0)
            // The first connection that waits shows that the backlog is full.
            let flags = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue)
            var address = UnixSocket.address(path)
            while true {
                let client = socket(AF_UNIX, flags, 0)
                open.append(client)
                let result = withUnsafePointer(to: &address) {
                    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                        connect(client, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                    }
                }
                if result != 0 {
                    try #require(errno == EAGAIN)
                    break
                }
            }
        }
        open.forEach { close($0) }
        #expect(reason == "DIR/s is in use: another process listens on it; stop that process, or set socket.path")
    }

    @Test func `F49, F44: the second of two processes on one socket fails`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let first = try makeSocket(path)
            let error = #expect(throws: ListeningSocketFailure.self) { try makeSocket(path) }
            #expect(error?.description == "another process uses \(path): it holds the lock on \(path).lock")
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            close(client)
            #expect(try first.remove())
            close(first.descriptor)

            let third = try makeSocket(path)
            #expect(try third.remove())
            close(third.descriptor)
        }
    }

    @Test func `F49: any other file at the path is not replaced, and the error names it`() throws {
        let advice = "move it away, or set socket.path"
        #expect(
            try refusal { try Data("x".utf8).write(to: URL(filePath: $0)) } == "DIR/s is taken by a file; \(advice)")
        #expect(try refusal { try #require(mkdir($0, 0o755) == 0) } == "DIR/s is taken by a directory; \(advice)")
        #expect(try refusal { try #require(mkfifo($0, 0o600) == 0) } == "DIR/s is taken by a FIFO; \(advice)")
        #expect(
            try refusal { path in
                close(try UnixSocket.listen(path + ".target"))
                try #require(symlink(path + ".target", path) == 0)
            } == "DIR/s is taken by a symbolic link; \(advice)")
        var datagram: Int32 = -1
        #expect(
            try refusal { datagram = try UnixSocket.bind($0, SOCK_DGRAM) }
                == "DIR/s is not a stream socket; \(advice)")
        close(datagram)
    }

    @Test func `F49: a stale socket of another uid is not replaced`() throws {
        // Only root could change the file's owner, so the program has another uid.
        let reason = try refusal(owner: geteuid() + 1) { close(try UnixSocket.listen($0)) }
        #expect(
            reason
                == "DIR/s is a socket of uid \(geteuid()), not of uid \(geteuid() + 1); move it away, or set socket.path"
        )
    }

    @Test func `F49: an invalid path is an error, and nothing is created`() throws {
        let long = "/tmp/" + String(repeating: "x", count: 103)
        let error = #expect(throws: ListeningSocketFailure.self) { try makeSocket(long) }
        #expect(error?.description.hasSuffix("is 108 bytes long; a Unix socket's path has at most 107") == true)

        for path in ["relative", "/tmp/", ""] {
            #expect(throws: ListeningSocketFailure("\"\(path)\" is not the absolute path of a file")) {
                try makeSocket(path)
            }
        }
    }

    @Test func `F49: the longest path of a socket is valid`() throws {
        try Fixture.withDirectory { directory in
            let path = directory + "/" + String(repeating: "x", count: 106 - directory.utf8.count)
            let socket = try makeSocket(path)
            #expect(path.utf8.count == 107)
            #expect(try socket.remove())
            close(socket.descriptor)
        }
    }

    @Test func `F49: without write permission, the error names the file`() throws {
        let proc = #expect(throws: ListeningSocketFailure.self) { try makeSocket("/proc/s") }
        #expect(proc?.description.hasPrefix("cannot create the lock file /proc/s.lock: ") == true)
        let absent = #expect(throws: ListeningSocketFailure.self) {
            try makeSocket("/nonexistent/a/s")
        }
        #expect(
            absent?.description == "cannot create the lock file /nonexistent/a/s.lock: No such file or directory")
        try Fixture.withDirectory { directory in
            try Data().write(to: URL(filePath: "\(directory)/file"))
            let below = #expect(throws: ListeningSocketFailure.self) {
                try makeSocket("\(directory)/file/s")
            }
            #expect(below?.description == "cannot create the lock file \(directory)/file/s.lock: Not a directory")
        }
    }

    @Test func `another file at the lock file's path is not replaced`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            try #require(mkfifo(path + ".lock", 0o600) == 0)
            let error = #expect(throws: ListeningSocketFailure.self) { try makeSocket(path) }
            #expect(error?.description.contains("is not a plain file; move it away") == true)
            #expect(mode(path + ".lock") != nil)
            unlink(path + ".lock")
            try #require(symlink("/etc/passwd", path + ".lock") == 0)
            #expect(throws: ListeningSocketFailure.self) { try makeSocket(path) }
        }
    }

    @Test func `a stop does not remove a file that replaced the socket`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let socket = try makeSocket(path)
            try #require(rename(path, path + ".old") == 0)
            let other = try UnixSocket.listen(path)
            #expect(try !socket.remove())
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            [client, other, socket.descriptor].forEach { close($0) }
        }
    }

    @Test func `F49: one of many concurrent starts gets the socket`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            close(try UnixSocket.listen(path))
            let results = Results()
            DispatchQueue.concurrentPerform(iterations: 16) { _ in
                results.add(Result { try makeSocket(path) })
            }
            let winners = results.all.compactMap { try? $0.get() }
            #expect(winners.count == 1)
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            close(client)
            for winner in winners {
                #expect(try winner.remove())
                close(winner.descriptor)
            }
        }
    }

    private final class Results: @unchecked Sendable {
        // Protected by the lock.
        private var results: [Result<ListeningSocket, any Error>] = []
        private let lock = NSLock()

        func add(_ result: Result<ListeningSocket, any Error>) { lock.withLock { results.append(result) } }
        var all: [Result<ListeningSocket, any Error>] { lock.withLock { results } }
    }
}

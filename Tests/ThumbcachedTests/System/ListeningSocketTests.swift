import Foundation
import LinuxSupport
import Testing

@testable import thumbcached

@Suite struct ListeningSocketTests {
    /// A socket in a directory of its own, with what stands there already.
    private func refusal(owner: UInt32 = geteuid(), _ prepare: (_ path: String) throws -> Void) throws -> String? {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            try prepare(path)
            let before = try FileIdentity.of(path)
            let error = #expect(throws: DaemonError.self) {
                try ListeningSocket(path: path, mode: 0o666, owner: owner)
            }
            #expect(try FileIdentity.of(path) == before, "what was there is there still")
            #expect(try FileIdentity.of(path + ".lock") == nil)
            return error?.description.replacing(directory, with: "DIR")
        }
    }

    private func mode(_ path: String) -> mode_t? {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : nil
    }

    @Test func `it listens, with its mode, in its directory, and leaves nothing behind`() throws {
        try Fixture.withDirectory { directory in
            for permissions in [0o600, 0o666, 0o660] as [UInt32] {
                let path = "\(directory)/run/s"
                try makeDirectories("\(directory)/run", mode: 0o755)
                let socket = try ListeningSocket(path: path, mode: permissions)
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

    @Test func `F49: a stale socket of its own is taken over`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            // As a kill leaves it: socket and lock file are there, nobody listens, nobody holds the lock.
            close(try UnixSocket.listen(path))
            try Data().write(to: URL(filePath: path + ".lock"))
            let stale = try FileIdentity.of(path)
            #expect(try UnixSocket.connect(path).code == ECONNREFUSED)

            let socket = try ListeningSocket(path: path, mode: 0o666)
            defer { close(socket.descriptor) }
            #expect(try FileIdentity.of(path) != stale)
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            close(client)
            #expect(try socket.remove())
        }
    }

    @Test func `F49: a socket that another process listens on is left alone`() throws {
        var listener: Int32 = -1
        let reason = try refusal { listener = try UnixSocket.listen($0) }
        close(listener)
        #expect(reason == "DIR/s is in use: another process listens on it; stop that, or set socket.path")
    }

    @Test func `F49: so is one whose queue is full`() throws {
        var open: [Int32] = []
        let reason = try refusal { path in
            let listener = try UnixSocket.bind(path)
            open.append(listener)
            try #require(listen(listener, 0) == 0)
            // The first that has to wait shows that the queue is full.
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
        #expect(reason == "DIR/s is in use: another process listens on it; stop that, or set socket.path")
    }

    @Test func `F49, F44: two daemons on one socket: the second is told`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let first = try ListeningSocket(path: path, mode: 0o666)
            let error = #expect(throws: DaemonError.self) { try ListeningSocket(path: path, mode: 0o666) }
            #expect(error?.description == "\(path) is in use: another thumbcached holds its lock")
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            close(client)
            #expect(try first.remove())
            close(first.descriptor)

            let third = try ListeningSocket(path: path, mode: 0o666)
            #expect(try third.remove())
            close(third.descriptor)
        }
    }

    @Test func `F49: anything else at the path is left alone and named`() throws {
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
                == "DIR/s is a socket of another kind, not of thumbcached's; \(advice)")
        close(datagram)
    }

    @Test func `F49: a stale socket of another uid is left alone`() throws {
        // Only root could give it away; so it stays with the tests' uid, and the daemon is another.
        let reason = try refusal(owner: geteuid() + 1) { close(try UnixSocket.listen($0)) }
        #expect(
            reason == "DIR/s is a socket of uid \(geteuid()), not of this daemon's; move it away, or set socket.path")
    }

    @Test func `F49: a path that no socket can have is refused before anything is made`() throws {
        let long = "/tmp/" + String(repeating: "x", count: 103)
        let error = #expect(throws: DaemonError.self) { try ListeningSocket(path: long, mode: 0o666) }
        #expect(error?.description.hasSuffix("is 108 bytes long; a Unix socket's path has 107 at most") == true)

        for path in ["relative", "/tmp/", ""] {
            #expect(throws: DaemonError("\"\(path)\" is not the absolute path of a file")) {
                try ListeningSocket(path: path, mode: 0o666)
            }
        }
    }

    @Test func `F49: the longest path that a socket can have is usable`() throws {
        try Fixture.withDirectory { directory in
            let path = directory + "/" + String(repeating: "x", count: 106 - directory.utf8.count)
            let socket = try ListeningSocket(path: path, mode: 0o666)
            #expect(path.utf8.count == 107)
            #expect(try socket.remove())
            close(socket.descriptor)
        }
    }

    @Test func `F49: where nothing may be made, the error says what could not be`() throws {
        let proc = #expect(throws: DaemonError.self) { try ListeningSocket(path: "/proc/s", mode: 0o666) }
        #expect(proc?.description.hasPrefix("cannot make the lock file /proc/s.lock: ") == true)
        let absent = #expect(throws: DaemonError.self) {
            try ListeningSocket(path: "/nonexistent/a/s", mode: 0o666)
        }
        #expect(
            absent?.description == "cannot make the lock file /nonexistent/a/s.lock: No such file or directory")
        try Fixture.withDirectory { directory in
            try Data().write(to: URL(filePath: "\(directory)/file"))
            let below = #expect(throws: DaemonError.self) {
                try ListeningSocket(path: "\(directory)/file/s", mode: 0o666)
            }
            #expect(below?.description == "cannot make the lock file \(directory)/file/s.lock: Not a directory")
        }
    }

    @Test func `a lock file that is none is left alone`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            try #require(mkfifo(path + ".lock", 0o600) == 0)
            let error = #expect(throws: DaemonError.self) { try ListeningSocket(path: path, mode: 0o666) }
            #expect(error?.description.contains("is no plain file; move it away") == true)
            #expect(mode(path + ".lock") != nil)
            unlink(path + ".lock")
            try #require(symlink("/etc/passwd", path + ".lock") == 0)
            #expect(throws: DaemonError.self) { try ListeningSocket(path: path, mode: 0o666) }
        }
    }

    @Test func `on stop, what has taken the path since is left alone`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let socket = try ListeningSocket(path: path, mode: 0o666)
            try #require(rename(path, path + ".old") == 0)
            let other = try UnixSocket.listen(path)
            #expect(try !socket.remove())
            let (client, code) = try UnixSocket.connect(path)
            #expect(code == 0)
            [client, other, socket.descriptor].forEach { close($0) }
        }
    }

    @Test func `F49: of many that start at once, one gets the socket`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            close(try UnixSocket.listen(path))
            let results = Results()
            DispatchQueue.concurrentPerform(iterations: 16) { _ in
                results.add(Result { try ListeningSocket(path: path, mode: 0o666) })
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
        // Guarded by the lock.
        private var results: [Result<ListeningSocket, any Error>] = []
        private let lock = NSLock()

        func add(_ result: Result<ListeningSocket, any Error>) { lock.withLock { results.append(result) } }
        var all: [Result<ListeningSocket, any Error>] { lock.withLock { results } }
    }
}

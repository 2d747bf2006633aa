import Foundation
import LinuxSupport
import Testing

@testable import thumbcached

@Suite struct StandardDirectoriesTests {
    @Test func `systemd's directories take precedence, and the first of several is used`() {
        let found = StandardDirectories(
            environment: [
                "CACHE_DIRECTORY": "/var/cache/a:/var/cache/b", "STATE_DIRECTORY": "/var/lib/a",
                "RUNTIME_DIRECTORY": "/run/a", "HOME": "/home/alice", "XDG_CACHE_HOME": "/c",
                "XDG_RUNTIME_DIR": "/run/user/1000",
            ], uid: 1000)
        #expect(found.cache == "/var/cache/a")
        #expect(found.state == "/var/lib/a")
        #expect(found.runtime == "/run/a")
        #expect(found.socket == "/run/a/thumbcached.sock")
    }

    @Test func `without systemd an ordinary user's directories are used`() {
        let found = StandardDirectories(
            environment: ["XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/run/user/1000"],
            uid: 1000)
        #expect(found.cache == "/c/thumbcached")
        #expect(found.state == "/s/thumbcached")
        #expect(found.runtime == "/run/user/1000/thumbcached")
        #expect(found.socket == "/run/user/1000/thumbcached/thumbcached.sock")
    }

    @Test func `HOME replaces missing XDG variables`() {
        let found = StandardDirectories(environment: ["HOME": "/home/alice", "XDG_CACHE_HOME": "relative"], uid: 1000)
        #expect(found.cache == "/home/alice/.cache/thumbcached")
        #expect(found.state == "/home/alice/.local/state/thumbcached")
        #expect(found.runtime == nil)
        #expect(found.socket == nil)
    }

    @Test func `root's socket has the machine's path, in every session`() {
        let bare = StandardDirectories(environment: ["HOME": "/root"], uid: 0)
        #expect(bare.runtime == "/run/thumbcached/keys")
        #expect(bare.socket == "/run/thumbcached/thumbcached.sock")
        let session = StandardDirectories(environment: ["XDG_RUNTIME_DIR": "/run/user/0"], uid: 0)
        #expect(session.runtime == "/run/user/0/thumbcached")
        #expect(session.socket == "/run/thumbcached/thumbcached.sock")
    }

    @Test func `directories are created with their mode whatever the umask; existing ones are unchanged`() throws {
        try Fixture.withDirectory { directory in
            func mode(_ path: String) throws -> mode_t {
                var status = stat()
                try #require(stat(path, &status) == 0)
                return status.st_mode & 0o7777
            }
            try makeDirectories("\(directory)/a/b", mode: 0o1777)
            #expect(try mode("\(directory)/a/b") == 0o1777)
            #expect(try mode("\(directory)/a") == 0o755)
            try makeDirectories("\(directory)/a/b", mode: 0o700)
            #expect(try mode("\(directory)/a/b") == 0o1777)
            #expect(throws: SystemError("create the directory /proc/thumbcached", code: ENOENT)) {
                try makeDirectories("/proc/thumbcached", mode: 0o700)
            }
        }
    }

    @Test func `a socket path is not missing when systemd passes the socket`() throws {
        let environment = ["HOME": "/home/alice", "LISTEN_FDS": "1", "LISTEN_PID": "\(getpid())"]
        let configuration = try Fixture.loader(environment: environment, uid: 1000).decode("", file: "f.toml")
        #expect(configuration.socket.path == nil)
    }
}

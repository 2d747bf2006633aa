import Foundation
import LinuxSupport
import ProgramSupport
import Testing

@testable import thumbcached

@Suite struct SystemdNotifierTests {
    /// A datagram socket that collects messages.
    private func received(_ descriptor: Int32) -> String {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
    }

    @Test func `states arrive at a socket in the file system`() throws {
        try Fixture.withDirectory { directory in
            let descriptor = try UnixSocket.bind("\(directory)/n", SOCK_DGRAM)
            defer { close(descriptor) }
            let notifier = SystemdNotifier(environment: ["NOTIFY_SOCKET": "\(directory)/n"])
            try notifier.send(.ready, .status("3 users"))
            #expect(received(descriptor) == "READY=1\nSTATUS=3 users")
            try notifier.send(.status("one\nREADY=1\r\ntwo"))
            #expect(received(descriptor) == "STATUS=one READY=1 two")
            try notifier.send(.watchdog)
            #expect(received(descriptor) == "WATCHDOG=1")
            try notifier.send(.stopping)
            #expect(received(descriptor) == "STOPPING=1")
        }
    }

    @Test func `the message of a reload contains its start time`() throws {
        try Fixture.withDirectory { directory in
            let descriptor = try UnixSocket.bind("\(directory)/n", SOCK_DGRAM)
            defer { close(descriptor) }
            let notifier = SystemdNotifier(environment: ["NOTIFY_SOCKET": "\(directory)/n"])
            try notifier.send(.reloading(monotonic: .max))
            #expect(received(descriptor) == "RELOADING=1\nMONOTONIC_USEC=18446744073709551615")
        }
    }

    @Test func `states arrive at an abstract socket`() throws {
        let name = "@thumbcached-test-\(UUID())"
        let descriptor = try UnixSocket.make(SOCK_DGRAM)
        defer { close(descriptor) }
        var address = UnixSocket.address(name)
        address.sun_path.0 = 0
        let length = socklen_t(MemoryLayout<sa_family_t>.size + name.utf8.count)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
        }
        try #require(result == 0)
        try SystemdNotifier(environment: ["NOTIFY_SOCKET": name]).send(.ready)
        #expect(received(descriptor) == "READY=1")
    }

    @Test func `an empty NOTIFY_SOCKET counts as unset, and without a socket sending succeeds`() {
        let unset = SystemdNotifier(environment: [:])
        #expect(SystemdNotifier(environment: ["NOTIFY_SOCKET": ""]) == unset)
        #expect(SystemdNotifier(environment: ["NOTIFY_SOCKET": "/n"]) != unset)
        #expect(throws: Never.self) { try unset.send(.ready) }
    }

    @Test func `a failure to send is an error`() throws {
        func refusal(_ address: String) -> String? {
            let notifier = SystemdNotifier(environment: ["NOTIFY_SOCKET": address])
            let error = #expect(throws: (any Error).self) { try notifier.send(.ready) }
            return error.map { "\($0)" }
        }
        #expect(refusal("/nonexistent/n") == "notify systemd at \"/nonexistent/n\": No such file or directory")
        for address in ["relative", "vsock:2:1", "/", "@"] {
            #expect(refusal(address) == "NOTIFY_SOCKET: expected an absolute path or @name, not \"\(address)\"")
        }
        #expect(refusal("/" + String(repeating: "x", count: 107))?.hasSuffix(": File name too long") == true)
    }

    @Test func `the watchdog is fed twice in each timeout`() {
        func interval(_ environment: [String: String]) -> Int64? {
            SystemdNotifier(environment: environment, pid: 7).watchdogInterval
        }
        #expect(interval(["WATCHDOG_USEC": "30000000"]) == 15_000)
        #expect(interval(["WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"]) == 15_000)
        #expect(interval(["WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"]) == nil)
        for text in ["", "0", "-1", "x"] { #expect(interval(["WATCHDOG_USEC": text]) == nil) }
        #expect(interval([:]) == nil)
    }
}

@Suite struct SocketActivationTests {
    private func environment(_ count: String = "1", pid: String = "7") -> [String: String] {
        ["LISTEN_FDS": count, "LISTEN_PID": pid]
    }

    private func refusal(_ environment: [String: String], first: Int32) -> String? {
        #expect(throws: SocketActivation.Failure.self) {
            try SocketActivation(environment: environment, pid: 7, first: first).descriptor()
        }?.description.replacing("\(first)", with: "N")
    }

    @Test func `a passed listening Unix socket is returned and closed on exec`() throws {
        try Fixture.withDirectory { directory in
            let listener = try UnixSocket.listen("\(directory)/s")
            defer { close(listener) }
            try #require(fcntl(listener, F_SETFD, 0) == 0)
            let passed = try SocketActivation(environment: environment(), pid: 7, first: listener).descriptor()
            #expect(passed == listener)
            #expect(fcntl(listener, F_GETFD) == FD_CLOEXEC)
        }
    }

    @Test func `without sockets for this process, no descriptor is touched`() throws {
        for environment in [[:], environment("0"), environment(pid: "8"), ["LISTEN_FDS": "1"], ["LISTEN_PID": "7"]] {
            #expect(try SocketActivation(environment: environment, pid: 7, first: 9999).descriptor() == nil)
        }
    }

    @Test func `several listening sockets have the names of their units`() throws {
        try Fixture.withDirectory { directory in
            let listener = try UnixSocket.listen("\(directory)/s")
            defer { close(listener) }
            try #require(fcntl(listener, F_SETFD, 0) == 0)
            let named = environment().merging(["LISTEN_FDNAMES": "images"]) { $1 }
            let sockets = try SocketActivation(environment: named, pid: 7, first: listener).listeners(most: 2)
            #expect(sockets == [.init(name: "images", descriptor: listener, isUnix: true)])
            #expect(fcntl(listener, F_GETFD) == FD_CLOEXEC)
            let unnamed = try SocketActivation(environment: environment(), pid: 7, first: listener).listeners(most: 1)
            #expect(unnamed.map(\.name) == [""])
            #expect(try SocketActivation(environment: [:], pid: 7, first: 9999).listeners(most: 1) == [])
            for count in ["2", "x", "-1"] {
                #expect(throws: SocketActivation.Failure.self) {
                    try SocketActivation(environment: environment(count), pid: 7, first: listener).listeners(most: 1)
                }
            }
            let file = open("\(directory)/file", O_CREAT | O_RDWR, 0o600)
            defer { close(file) }
            #expect(throws: SocketActivation.Failure.self) {
                try SocketActivation(environment: environment(), pid: 7, first: file).listeners(most: 1)
            }
        }
    }

    @Test func `anything but one listening Unix stream socket is rejected`() throws {
        try Fixture.withDirectory { directory in
            let expected = "expected a listening Unix stream socket, as ListenStream= with a path creates it"
            #expect(
                refusal(environment("2"), first: 9999)
                    == "LISTEN_FDS passes 2 sockets; expected exactly one")
            #expect(
                refusal(environment("x"), first: 9999)
                    == "LISTEN_FDS is \"x\"; expected the number of passed sockets")
            #expect(
                refusal(environment(), first: 9999)
                    == "LISTEN_FDS passes descriptor N, which is not a socket: Bad file descriptor")

            let idle = try UnixSocket.bind("\(directory)/idle")
            #expect(
                refusal(environment(), first: idle) == "the passed socket does not listen; \(expected), with Accept=no")
            let datagram = try UnixSocket.bind("\(directory)/datagram", SOCK_DGRAM)
            #expect(refusal(environment(), first: datagram) == "the passed socket is not a stream socket; \(expected)")
            let internet = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            #expect(
                refusal(environment(), first: internet)
                    == "the passed socket has address family \(AF_INET), not AF_UNIX; \(expected)")
            [idle, datagram, internet].forEach { close($0) }
        }
    }
}

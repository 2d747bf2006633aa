import CacheFakes
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Synchronization

/// An HTTP/1.1 server on loopback that answers each path with a script and counts requests. Each connection has a
/// thread, so that a script may block at a gate, send invalid data, or never respond.
final class TestOrigin: Sendable {
    struct Request: Sendable {
        let method: String
        /// Without the query.
        let path: String
        let target: String
        /// Field names in lower case.
        let headers: [String: String]
    }

    typealias Script = @Sendable (Request, Peer) -> Void

    let address: String
    let port: UInt16
    private let listener: Int32
    private let scripts: [String: Script]
    private let state = NIOLockedValueBox(State())

    private struct State {
        var connections = 0
        var requests: [Request] = []
        var open: Set<Int32> = []
        var isStopped = false
    }

    /// Paths without a script are answered with an image.
    init(address: String = "127.0.0.1", port: UInt16 = 0, _ scripts: [String: Script] = [:]) throws {
        self.address = address
        self.scripts = scripts
        listener = try TestSocket.listen(address: address, port: port, backlog: 512)
        self.port = try TestSocket.port(of: listener)
        Thread.detachNewThread { [self] in acceptAll() }
    }

    /// Waits at the gate, then sends an image.
    static func held(at gate: Gate) -> Script {
        { _, peer in
            gate.pass()
            peer.answer(TestImage.png)
        }
    }

    /// Opens the gate and never responds.
    static func hanging(signaling arrival: Gate) -> Script {
        { _, peer in
            arrival.open()
            peer.waitForEnd()
        }
    }

    var connections: Int { state.withLockedValue { $0.connections } }
    var requests: [Request] { state.withLockedValue { $0.requests } }

    func url(_ path: String, host: String? = nil) -> String { "http://\(host ?? address):\(port)\(path)" }

    /// Closes all connections and accepts no more.
    func stop() {
        state.withLockedValue { state in
            state.isStopped = true
            for connection in state.open { shutdown(connection, Int32(SHUT_RDWR)) }
        }
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private func acceptAll() {
        while true {
            let connection = accept(listener, nil, nil)
            guard connection >= 0 else { break }
            let isStopped = state.withLockedValue { state in
                state.connections += 1
                state.open.insert(connection)
                return state.isStopped
            }
            if isStopped { shutdown(connection, Int32(SHUT_RDWR)) }
            Thread.detachNewThread { [self] in serve(connection) }
        }
        close(listener)
    }

    private func serve(_ connection: Int32) {
        let peer = Peer(connection)
        while let request = peer.readRequest() {
            state.withLockedValue { $0.requests.append(request) }
            (scripts[request.path] ?? { _, peer in peer.answer(TestImage.png) })(request, peer)
            if peer.isDone { break }
        }
        // Under the lock, so that `stop()` does not shut down a descriptor number that was reused.
        state.withLockedValue { state in
            state.open.remove(connection)
            close(connection)
        }
    }
}

/// A connection as seen by a script. Used by the connection's thread only.
final class Peer {
    private let connection: Int32
    private var unread: [UInt8] = []
    private(set) var isDone = false
    /// The number of requests on this connection, including the current one.
    private(set) var requests = 0

    fileprivate init(_ connection: Int32) {
        self.connection = connection
    }

    /// Returns false if the client has closed the connection.
    @discardableResult
    func send(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    @discardableResult
    func send(_ text: String) -> Bool { send(Array(text.utf8)) }

    func answer(_ body: [UInt8], status: String = "200 OK", headers: [String] = []) {
        let lines = ["HTTP/1.1 \(status)", "Content-Length: \(body.count)"] + headers + ["", ""]
        send(Array(lines.joined(separator: "\r\n").utf8) + body)
    }

    func redirect(to location: String, status: String = "302 Found") {
        answer([], status: status, headers: ["Location: \(location)"])
    }

    /// Closes the connection after the script.
    func hangUp() { isDone = true }

    /// Resets the connection after the script.
    func reset() {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(connection, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
        isDone = true
    }

    /// Waits until the client has closed the connection.
    func waitForEnd() {
        var byte: UInt8 = 0
        while recv(connection, &byte, 1, 0) > 0 {}
        isDone = true
    }

    fileprivate func readRequest() -> TestOrigin.Request? {
        let end = Array("\r\n\r\n".utf8)
        while true {
            if let range = unread.firstRange(of: end) {
                let text = String(decoding: unread[..<range.lowerBound], as: UTF8.self)
                unread.removeFirst(range.upperBound)
                requests += 1
                return Self.parse(text)
            }
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = recv(connection, &buffer, buffer.count, 0)
            guard count > 0 else { return nil }
            unread += buffer[..<count]
        }
    }

    private static func parse(_ text: String) -> TestOrigin.Request {
        let lines = text.components(separatedBy: "\r\n")
        let words = (lines.first ?? "").split(separator: " ").map(String.init)
        var headers: [String: String] = [:]
        for line in lines.dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            headers[line[..<colon].lowercased()] = line[line.index(after: colon)...].trimmingCharacters(
                in: .whitespaces)
        }
        let target = words.count > 1 ? words[1] : ""
        return TestOrigin.Request(
            method: words.first ?? "", path: String(target.prefix { $0 != "?" }), target: target, headers: headers)
    }
}

/// A failed call on a test socket.
struct TestSocketError: Error {
    let call: String
    let number = errno
}

enum TestSocket {
    static func listen(address: String, port: UInt16, backlog: Int32) throws -> Int32 {
        let family = address.contains(":") ? AF_INET6 : AF_INET
        let listener = socket(family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard listener >= 0 else { throw TestSocketError(call: "socket") }
        var yes: Int32 = 1
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout.size(ofValue: yes)))
        try withAddress(address, port) { address, length in
            guard bind(listener, address, length) == 0 else {
                let error = TestSocketError(call: "bind")
                close(listener)
                throw error
            }
        }
        guard Glibc.listen(listener, backlog) == 0 else { throw TestSocketError(call: "listen") }
        return listener
    }

    static func connect(address: String, port: UInt16, isBlocking: Bool) throws -> Int32 {
        let flags = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let client = socket(AF_INET, isBlocking ? flags : flags | Int32(SOCK_NONBLOCK.rawValue), 0)
        guard client >= 0 else { throw TestSocketError(call: "socket") }
        try withAddress(address, port) { address, length in
            guard Glibc.connect(client, address, length) == 0 || errno == EINPROGRESS else {
                throw TestSocketError(call: "connect")
            }
        }
        return client
    }

    static func assign(_ socket: Int32, address: String, port: UInt16) throws {
        try withAddress(address, port) { address, length in
            guard Glibc.bind(socket, address, length) == 0 else { throw TestSocketError(call: "bind") }
        }
    }

    static func port(of socket: Int32) throws -> UInt16 {
        // The port has the same offset in an IPv6 address.
        var address = sockaddr_in6()
        var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
        let code = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(socket, $0, &length) }
        }
        guard code == 0 else { throw TestSocketError(call: "getsockname") }
        return UInt16(bigEndian: address.sin6_port)
    }

    /// A port without a listener, for a server that is started later. It is below the range from which the kernel
    /// assigns ports (ip(7), ip_local_port_range), so that no connection of another test uses it, and it is returned
    /// once only.
    static func freePort() throws -> UInt16 {
        for _ in 0..<1_000 {
            let port = 26_000 + UInt16(portsTried.wrappingAdd(1, ordering: .relaxed).newValue % 6_000)
            do {
                close(try listen(address: "127.0.0.1", port: port, backlog: 1))
                return port
            } catch let error as TestSocketError where error.number == EADDRINUSE {
                continue
            }
        }
        throw TestSocketError(call: "bind (1000 ports)")
    }

    private static let portsTried = Atomic<UInt64>(.random(in: 0..<6_000))

    private static func withAddress(
        _ text: String, _ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) throws -> Void
    ) throws {
        if text.contains(":") { return try withIPv6Address(text, port, body) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        guard inet_pton(AF_INET, text, &address.sin_addr) == 1 else { throw TestSocketError(call: "inet_pton") }
        try withUnsafePointer(to: &address) { pointer in
            try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                try body(pointer, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    private static func withIPv6Address(
        _ text: String, _ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) throws -> Void
    ) throws {
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = port.bigEndian
        guard inet_pton(AF_INET6, text, &address.sin6_addr) == 1 else { throw TestSocketError(call: "inet_pton") }
        try withUnsafePointer(to: &address) { pointer in
            try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                try body(pointer, socklen_t(MemoryLayout<sockaddr_in6>.size))
            }
        }
    }
}

enum TestImage {
    /// A PNG of 17 x 11 pixels up to and including its IHDR chunk, which is all that the fetcher reads.
    static let png: [UInt8] = [
        0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52,
        0, 0, 0, 17, 0, 0, 0, 11, 1, 3, 0, 0, 0, 0xA3, 0xEE, 0xF4, 0x44,
    ]

    /// The same PNG, extended by bytes that depend on the seed.
    static func png(count: Int, seed: Int = 0) -> [UInt8] {
        png + (0..<max(0, count - png.count)).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ seed &* 17) }
    }
}

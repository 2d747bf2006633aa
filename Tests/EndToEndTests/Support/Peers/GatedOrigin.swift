import Foundation
import Glibc

/// A scripted HTTP server on loopback, which responds at once, when a gate opens, in parts, or never.
///
/// Each connection has a thread, which ends when the peer closes the connection or the origin ends.
final class GatedOrigin: Sendable {
    struct Request: Sendable {
        /// Position in order of arrival, from 1.
        var number: Int
        var path: String
        /// Keys are lower-case.
        var headers: [String: String]
        var body = ""
    }

    enum Step: Sendable {
        case send([UInt8])
        /// Waits until `open` is called for this gate.
        case wait(String)
        /// Sends nothing more until the peer closes the connection.
        case silence
        case close
    }

    private struct State: Sendable {
        var requests: [Request] = []
        var openGates: Set<String> = []
        /// Number of silent connections that the peer closed.
        var abandoned = 0
        var connections: Set<CInt> = []
        var isListening = true
        var hasEnded = false
    }

    let port: UInt16
    private let listener: CInt
    private let state = Watched(State())
    private let answer: @Sendable (Request) -> [Step]

    /// - Parameter answer: returns the steps for a request. Called on the connection's thread.
    init(_ answer: @escaping @Sendable (Request) -> [Step]) throws {
        (listener, port) = try listenTCP(backlog: 1_024)
        self.answer = answer
        Thread.detachNewThread { [self] in acceptConnections() }
    }

    /// An origin that responds at once, with an image for each request.
    static func images(_ image: @escaping @Sendable (Request) -> [UInt8]) throws -> GatedOrigin {
        try GatedOrigin { request in [.send(GatedOrigin.response(image(request)))] }
    }

    var url: String { "http://127.0.0.1:\(port)" }
    var requests: [Request] { state.current.requests }

    /// Opens a gate, for all connections and for good.
    func open(_ gate: String) { state.change { _ = $0.openGates.insert(gate) } }

    func waitForRequests(_ count: Int) throws {
        guard state.wait(longestWait, until: { $0.requests.count >= count }) else {
            throw Failure("the origin received \(requests.count) requests, not \(count)")
        }
    }

    /// Waits until the peer has closed `count` silent connections.
    func waitForAbandoned(_ count: Int) throws {
        guard state.wait(longestWait, until: { $0.abandoned >= count }) else {
            throw Failure("\(state.current.abandoned) silent connections were closed, not \(count)")
        }
    }

    func end() {
        state.change { state in
            state.hasEnded = true
            // Under the lock: a closed descriptor's number may already belong to another test.
            for connection in state.connections { shutdown(connection, CInt(SHUT_RDWR)) }
            if state.isListening { shutdown(listener, CInt(SHUT_RDWR)) }
        }
    }

    // MARK: Responses

    static func response(
        _ body: [UInt8], status: String = "200 OK", headers: [String] = [], length: Int? = nil
    ) -> [UInt8] {
        let lines =
            ["HTTP/1.1 \(status)", "Content-Type: image/gif", "Content-Length: \(length ?? body.count)"] + headers
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + body
    }

    // MARK: The server

    private func acceptConnections() {
        while true {
            let connection = accept(listener, nil, nil)
            guard connection >= 0 else { break }
            let isAccepted = state.change { state in
                if !state.hasEnded { state.connections.insert(connection) }
                return !state.hasEnded
            }
            guard isAccepted else {
                close(connection)
                break
            }
            Thread.detachNewThread { [self] in
                serve(connection)
                state.change { _ = $0.connections.remove(connection) }
                close(connection)
            }
        }
        state.change { $0.isListening = false }
        close(listener)
    }

    private func serve(_ connection: CInt) {
        var input: [UInt8] = []
        while let head = readHead(connection, &input) {
            guard let request = record(head, connection, &input) else { return }
            for step in answer(request) {
                switch step {
                case .send(let bytes):
                    guard sendAll(connection, bytes) else { return }
                case .wait(let gate):
                    guard state.wait(300, until: { $0.openGates.contains(gate) || $0.hasEnded }),
                        !state.current.hasEnded
                    else { return }
                case .silence:
                    var byte: UInt8 = 0
                    while recv(connection, &byte, 1, 0) > 0 {}
                    state.change { $0.abandoned += 1 }
                    return
                case .close:
                    return
                }
            }
        }
    }

    /// Reads the body and records the request; nil if the peer closes the connection before the end.
    private func record(_ head: String, _ connection: CInt, _ input: inout [UInt8]) -> Request? {
        let lines = head.split(separator: "\r\n")
        let path = lines.first?.split(separator: " ").dropFirst().first.map(String.init) ?? ""
        let headers = lines.dropFirst().compactMap { line -> (String, String)? in
            guard let colon = line.firstIndex(of: ":") else { return nil }
            return (line[..<colon].lowercased(), line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces))
        }
        let fields = Dictionary(headers, uniquingKeysWith: { $0 + ", " + $1 })
        guard let body = readBody(Int(fields["content-length"] ?? "") ?? 0, connection, &input) else { return nil }
        return state.change { state in
            let request = Request(number: state.requests.count + 1, path: path, headers: fields, body: body)
            state.requests.append(request)
            return request
        }
    }

    /// The head of the next request; nil if the peer closes the connection.
    private func readHead(_ connection: CInt, _ input: inout [UInt8]) -> String? {
        let end = Array("\r\n\r\n".utf8)
        var buffer = [UInt8](repeating: 0, count: 8_192)
        while true {
            if let range = input.firstRange(of: end) {
                defer { input.removeSubrange(..<range.upperBound) }
                return String(decoding: input[..<range.lowerBound], as: UTF8.self)
            }
            let count = recv(connection, &buffer, buffer.count, 0)
            guard count > 0 else { return nil }
            input += buffer[..<count]
        }
    }

    /// Nil if the peer closes the connection before the end.
    private func readBody(_ length: Int, _ connection: CInt, _ input: inout [UInt8]) -> String? {
        var buffer = [UInt8](repeating: 0, count: 8_192)
        while input.count < length {
            let count = recv(connection, &buffer, buffer.count, 0)
            guard count > 0 else { return nil }
            input += buffer[..<count]
        }
        defer { input.removeFirst(length) }
        return String(decoding: input[..<length], as: UTF8.self)
    }

    private func sendAll(_ connection: CInt, _ bytes: [UInt8]) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                Glibc.send(connection, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            sent += count
        }
        return true
    }
}

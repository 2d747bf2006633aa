import Foundation
import Glibc
import NIOConcurrencyHelpers

/// A token endpoint on loopback that answers as a test determines and records requests. Like ``TestOrigin``, it has a
/// thread for each connection, but it also reads bodies.
final class TokenServer: Sendable {
    struct Request: Sendable {
        let method: String
        let target: String
        /// Field names in lower case.
        let headers: [String: String]
        let body: String

        /// The form fields of the body, decoded.
        var form: [String: String] {
            Dictionary(
                body.split(separator: "&").map { field in
                    let parts = field.split(separator: "=", maxSplits: 1).map {
                        String($0).removingPercentEncoding ?? ""
                    }
                    return (parts.first ?? "", parts.count > 1 ? parts[1] : "")
                }, uniquingKeysWith: { "\($0), \($1)" })
        }
    }

    private struct State {
        var requests: [Request] = []
        var connections = 0
        var ended = 0
    }

    let port: UInt16
    private let listener: Int32
    private let state = NIOLockedValueBox(State())
    private let answer: @Sendable (Request) -> [UInt8]

    /// - Parameter answer: the bytes to send; if empty, waits until the peer closes the connection.
    init(_ answer: @escaping @Sendable (Request) -> [UInt8]) throws {
        self.answer = answer
        listener = try TestSocket.listen(address: "127.0.0.1", port: 0, backlog: 512)
        port = try TestSocket.port(of: listener)
        Thread.detachNewThread { [self] in
            while true {
                let connection = accept(listener, nil, nil)
                guard connection >= 0 else { break }
                state.withLockedValue { $0.connections += 1 }
                Thread.detachNewThread { [self] in serve(connection) }
            }
            close(listener)
        }
    }

    var url: String { "http://127.0.0.1:\(port)/token" }
    var requests: [Request] { state.withLockedValue { $0.requests } }
    var connections: Int { state.withLockedValue { $0.connections } }
    /// The number of closed connections.
    var ended: Int { state.withLockedValue { $0.ended } }

    func stop() { shutdown(listener, Int32(SHUT_RDWR)) }

    /// An HTTP response with a body.
    static func response(_ body: String, status: String = "200 OK", headers: [String] = []) -> [UInt8] {
        let lines =
            ["HTTP/1.1 \(status)", "Content-Type: application/json", "Content-Length: \(body.utf8.count)"] + headers
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n" + body).utf8)
    }

    private func serve(_ connection: Int32) {
        defer {
            state.withLockedValue { $0.ended += 1 }
            close(connection)
        }
        var input: [UInt8] = []
        guard let request = Self.read(connection, &input) else { return }
        state.withLockedValue { $0.requests.append(request) }
        var rest = answer(request)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
        var byte: UInt8 = 0
        while recv(connection, &byte, 1, 0) > 0 {}
    }

    private static func read(_ connection: Int32, _ input: inout [UInt8]) -> Request? {
        func more() -> Bool {
            var buffer = [UInt8](repeating: 0, count: 4_096)
            let count = recv(connection, &buffer, buffer.count, 0)
            if count > 0 { input += buffer[..<count] }
            return count > 0
        }
        var end = input.firstRange(of: Array("\r\n\r\n".utf8))
        while end == nil {
            guard more() else { return nil }
            end = input.firstRange(of: Array("\r\n\r\n".utf8))
        }
        guard let end else { return nil }
        let lines = String(decoding: input[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
        let headers = Dictionary(
            lines.dropFirst().map { line in
                let parts = line.split(separator: ":", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
                return ((parts.first ?? "").lowercased(), parts.count > 1 ? parts[1] : "")
            }, uniquingKeysWith: { "\($0), \($1)" })
        let length = Int(headers["content-length"] ?? "") ?? 0
        while input.count < end.upperBound + length { guard more() else { return nil } }
        let words = (lines.first ?? "").split(separator: " ").map(String.init)
        return Request(
            method: words.first ?? "", target: words.count > 1 ? words[1] : "", headers: headers,
            body: String(decoding: input[end.upperBound..<(end.upperBound + length)], as: UTF8.self))
    }
}

import Foundation
import Glibc

/// A server on loopback that passes each connection to a script.
final class RawServer: Sendable {
    let port: UInt16
    private let listener: Int32

    /// - Parameter serve: runs on the connection's thread; the connection is closed afterwards.
    init(_ serve: @escaping @Sendable (Int32) -> Void) throws {
        listener = try TestSocket.listen(address: "127.0.0.1", port: 0, backlog: 512)
        port = try TestSocket.port(of: listener)
        Thread.detachNewThread { [listener] in
            while true {
                let connection = accept(listener, nil, nil)
                guard connection >= 0 else { break }
                Thread.detachNewThread {
                    serve(connection)
                    close(connection)
                }
            }
            close(listener)
        }
    }

    func stop() { shutdown(listener, Int32(SHUT_RDWR)) }

    static func write(_ bytes: [UInt8], to connection: Int32) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }

    /// Reads until `isEnough` returns true or the peer closes. Returns all bytes read.
    static func read(from connection: Int32, until isEnough: ([UInt8]) -> Bool) -> [UInt8]? {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while !isEnough(bytes) {
            let count = recv(connection, &buffer, buffer.count, 0)
            guard count > 0 else { return nil }
            bytes += buffer[..<count]
        }
        return bytes
    }
}

import Glibc
import NIOCore
import ThumbcacheProtocol

/// A blocking client that reports the errno of each send and receive.
final class BlockingPeer: Sendable {
    private let descriptor: CInt

    init(_ path: String) throws {
        descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw IOError(errnoCode: errno, reason: "connect") }
    }

    func end() { close(descriptor) }

    /// Sends a request. Returns 0 or errno.
    func send(_ words: [String]) -> CInt {
        TestClient.request(words).withUnsafeReadableBytes {
            Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) == $0.count ? 0 : errno
        }
    }

    /// Receives text: empty at EOF, "error" and errno on failure.
    /// - Parameter waits: false for an error instead of waiting for input.
    func receive(waits: Bool = true) -> String {
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = recv(descriptor, &bytes, bytes.count, waits ? 0 : CInt(MSG_DONTWAIT))
        return count < 0 ? "error \(errno)" : String(decoding: bytes[..<count], as: UTF8.self)
    }

    func exchange(_ words: [String]) -> String {
        let error = send(words)
        return error == 0 ? receive() : "error \(error)"
    }

    /// Whether input or EOF is available.
    var hasArrived: Bool {
        var status = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&status, 1, 0) > 0
    }
}

import Foundation
import Glibc

/// The service manager's side of sd_notify(3): a datagram socket that collects the daemon's messages.
final class NotifySocket {
    let path: String
    private let descriptor: CInt
    /// All received lines.
    private(set) var lines: [String] = []

    init(_ machine: Machine) throws {
        path = machine.path("notify-\(machine.nextNumber())")
        descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard withUnixAddress(path, { bind(descriptor, $0, $1) }) == 0 else {
            throw Failure(systemCall: "bind \(path)")
        }
        var limit = timeval(tv_sec: Int(longestWait), tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// Waits for a line that arrives after the previous call has returned.
    func wait(for line: String) throws {
        var received: [String] = []
        while !received.contains(line) {
            var buffer = [UInt8](repeating: 0, count: 4_096)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            guard count > 0 else { throw Failure("the daemon did not send \(line), only \(lines)") }
            received = String(decoding: buffer[..<count], as: UTF8.self).split(separator: "\n").map(String.init)
            lines += received
        }
    }
}

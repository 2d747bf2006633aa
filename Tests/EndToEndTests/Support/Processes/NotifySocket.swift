import Foundation
import Glibc

/// The service manager's end of sd_notify: a datagram socket that collects what the daemon says about itself.
final class NotifySocket {
    let path: String
    private let descriptor: CInt
    /// Every line, in the order it came.
    private(set) var lines: [String] = []

    init(_ machine: Machine) throws {
        path = machine.path("notify-\(machine.takeNumber())")
        descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard withUnixAddress(path, { bind(descriptor, $0, $1) }) == 0 else {
            throw Failure(systemCall: "bind \(path)")
        }
        var limit = timeval(tv_sec: Int(longestWait), tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// Waits until a line has come that was not there after the last wait.
    func wait(for line: String) throws {
        var received: [String] = []
        while !received.contains(line) {
            var buffer = [UInt8](repeating: 0, count: 4_096)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            guard count > 0 else { throw Failure("the daemon did not say \(line), only \(lines)") }
            received = String(decoding: buffer[..<count], as: UTF8.self).split(separator: "\n").map(String.init)
            lines += received
        }
    }
}

import Foundation
import Glibc
import Synchronization

/// A real nginx on loopback that serves a directory, and its access log. It is one process: a worker of its own would
/// be left behind, for good, when its master is killed.
final class Nginx {
    let port: UInt16
    var url: String { "http://127.0.0.1:\(port)" }
    private let log: String
    private let process: ChildProcess

    /// - Parameters:
    ///   - directives: for the server, as nginx's own configuration has them.
    ///   - logging: what ``requests()`` shows of each.
    init(
        _ machine: Machine, serving pictures: String, directives: String = "", logging: String = "$uri $status"
    ) throws {
        let home = try machine.makeDirectory("nginx-\(machine.takeNumber())")
        log = "\(home)/access.log"
        port = try freePort()
        try write(
            """
            daemon off;
            master_process off;
            pid \(home)/pid;
            error_log \(home)/error.log;
            events { worker_connections 1024; }
            http {
                log_format path '\(logging)';
                access_log \(log) path;
                client_body_temp_path \(home)/body;
                proxy_temp_path \(home)/proxy;
                fastcgi_temp_path \(home)/fastcgi;
                uwsgi_temp_path \(home)/uwsgi;
                scgi_temp_path \(home)/scgi;
                types {
                    image/png png;
                    image/jpeg jpg;
                    image/gif gif;
                    image/webp webp;
                    image/avif avif;
                }
                server {
                    listen 127.0.0.1:\(port) backlog=1024;
                    root \(pictures);
                    \(directives)
                    location / { try_files $uri $uri.png $uri.jpg $uri.gif $uri.webp $uri.avif =404; }
                }
            }

            """, to: "\(home)/nginx.conf")
        process = try machine.start(
            ["nginx", "-c", "\(home)/nginx.conf", "-e", "\(home)/error.log", "-p", home],
            errors: .file("\(home)/stderr.log"))
        try eventually("nginx answers on port \(port)") {
            if let status = process.ending() {
                throw Failure(
                    "nginx ended with status \(status): "
                        + "\(String(decoding: try read("\(home)/stderr.log"), as: UTF8.self))"
                )
            }
            return (try? getHTTP(port, "/ready")) != nil
        }
    }

    /// What was asked for so far. nginx is one process, which writes a request's line before it takes up the next one;
    /// so once a request of our own is in the log, so is everything that was answered before.
    func requests() throws -> [String] {
        let marker = "/marker-\(UInt64.random(in: 0 ... .max))"
        try getHTTP(port, marker)
        var lines: [String] = []
        try eventually("nginx logs a request") {
            lines = String(decoding: try read(log), as: UTF8.self).split(separator: "\n").map(String.init)
            return lines.last?.hasPrefix(marker) == true
        }
        return lines.filter { !$0.hasPrefix("/marker-") && !$0.hasPrefix("/ready") }
    }
}

/// A TCP port of 127.0.0.1 that nobody listens on, for a server that is started later: one below those that the kernel
/// hands out by itself (ip(7), ip_local_port_range), which a connection of another test might have by then, and none
/// that was given out before.
func freePort() throws -> UInt16 {
    for _ in 0..<1_000 {
        let port = 20_000 + UInt16(portsTried.wrappingAdd(1, ordering: .relaxed).newValue % 6_000)
        do {
            close(try listenTCP(port: port, backlog: 1).descriptor)
            return port
        } catch let failure as Failure where failure.code == EADDRINUSE {
            continue
        }
    }
    throw Failure("of a thousand ports of 127.0.0.1 none is free")
}

private let portsTried = Atomic<UInt64>(.random(in: 0..<6_000))

/// Listens on a port of 127.0.0.1; 0 for one that the kernel chooses.
func listenTCP(port: UInt16 = 0, backlog: CInt) throws -> (descriptor: CInt, port: UInt16) {
    let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw Failure(systemCall: "socket") }
    var address = loopback(port: port)
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutablePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(descriptor, $0, size) == 0 && listen(descriptor, backlog) == 0
                && getsockname(descriptor, $0, &size) == 0
        }
    }
    guard bound else {
        let code = errno
        close(descriptor)
        throw Failure(systemCall: "listening on 127.0.0.1", code)
    }
    return (descriptor, UInt16(bigEndian: address.sin_port))
}

func connectTCP(_ port: UInt16) throws -> CInt {
    let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw Failure(systemCall: "socket") }
    var address = loopback(port: port)
    let connected = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
    }
    guard connected == 0 else {
        let code = errno
        close(descriptor)
        throw Failure(systemCall: "connect to 127.0.0.1:\(port)", code)
    }
    return descriptor
}

private func loopback(port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
    return address
}

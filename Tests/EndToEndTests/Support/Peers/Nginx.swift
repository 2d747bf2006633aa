import Foundation
import Glibc
import Synchronization

/// An nginx on loopback that serves a directory, and its access log. It runs as one process, because workers would
/// survive a master that is killed.
final class Nginx {
    let port: UInt16
    var url: String { "http://127.0.0.1:\(port)" }
    private let log: String
    private let process: ChildProcess

    /// - Parameters:
    ///   - directives: directives for nginx's `server` block.
    ///   - logging: log format of ``requests()``.
    init(
        _ machine: Machine, serving images: String, directives: String = "", logging: String = "$uri $status"
    ) throws {
        let home = try machine.makeDirectory("nginx-\(machine.nextNumber())")
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
                    root \(images);
                    \(directives)
                    location / { try_files $uri $uri.png $uri.jpg $uri.gif $uri.webp $uri.avif =404; }
                }
            }

            """, to: "\(home)/nginx.conf")
        process = try machine.start(
            ["nginx", "-c", "\(home)/nginx.conf", "-e", "\(home)/error.log", "-p", home],
            errors: .file("\(home)/stderr.log"))
        try eventually("nginx answers on port \(port)") {
            if let status = process.exitStatus() {
                throw Failure(
                    "nginx ended with status \(status): "
                        + "\(try readText("\(home)/stderr.log"))"
                )
            }
            return (try? getHTTP(port, "/ready")) != nil
        }
    }

    /// The log lines of all requests so far. nginx logs a request before it reads the next one, so the log is complete
    /// once it contains the request that this function sends.
    func requests() throws -> [String] {
        let marker = "/marker-\(UInt64.random(in: 0 ... .max))"
        try getHTTP(port, marker)
        var lines: [String] = []
        try eventually("nginx logs a request") {
            lines = try readText(log).split(separator: "\n").map(String.init)
            return lines.last?.hasPrefix(marker) == true
        }
        return lines.filter { !$0.hasPrefix("/marker-") && !$0.hasPrefix("/ready") }
    }
}

/// A free TCP port of 127.0.0.1 for a server that is started later. It lies below ip_local_port_range (ip(7)), whose
/// ports the connection of another test might get meanwhile, and is not returned twice.
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
    throw Failure("no free port of 127.0.0.1 after 1,000 attempts")
}

private let portsTried = Atomic<UInt64>(.random(in: 0..<6_000))

/// Listens on a port of 127.0.0.1; with port 0, the kernel chooses one.
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

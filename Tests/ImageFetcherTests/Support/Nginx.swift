import Foundation
import Glibc
import Testing

/// An nginx on loopback, with plain HTTP, TLS with HTTP/2, files and an access log.
final class Nginx {
    let directory: String
    let plainPort: UInt16
    /// The port for HTTP/2 and HTTP/1.1. The certificate of `expired.example` expired yesterday, and that of
    /// `unsigned.example` is self-signed.
    let securePort: UInt16
    /// The port for HTTP/1.1 over TLS.
    let securePlainPort: UInt16
    private let process = Process()

    /// The authority that signed the server's certificate.
    var caFile: String { directory + "/ca.pem" }

    init(files: [String: [UInt8]], locations: String = "") throws {
        directory = NSTemporaryDirectory() + "thumbcached-nginx-\(UUID().uuidString)"
        let manager = FileManager.default
        try manager.createDirectory(atPath: directory + "/www", withIntermediateDirectories: true)
        // Its workers run as another user if root starts it.
        try manager.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory)
        for (name, bytes) in files { try Data(bytes).write(to: URL(fileURLWithPath: directory + "/www/" + name)) }
        plainPort = try TestSocket.freePort()
        securePort = try TestSocket.freePort()
        securePlainPort = try TestSocket.freePort()
        try Self.makeCertificates(in: directory)
        let configuration = """
            daemon off; worker_processes 1; pid \(directory)/pid; error_log \(directory)/error.log;
            events { worker_connections 512; }
            http {
              log_format short '$connection $server_protocol $status $uri';
              access_log \(directory)/access.log short;
              client_body_temp_path \(directory)/t1; proxy_temp_path \(directory)/t2; fastcgi_temp_path \(directory)/t3;
              uwsgi_temp_path \(directory)/t4; scgi_temp_path \(directory)/t5;
              types { image/png png; image/gif gif; } etag on; gzip on; gzip_types image/png; gzip_min_length 1;
              # A busy machine may take minutes between two requests of a test.
              keepalive_requests 100000; keepalive_timeout 1h;
              server {
                listen 127.0.0.1:\(plainPort);
                listen 127.0.0.1:\(securePort) ssl http2;
                listen 127.0.0.2:\(securePort) ssl http2;
                listen 127.0.0.1:\(securePlainPort) ssl;
                ssl_certificate \(directory)/server.pem; ssl_certificate_key \(directory)/server.key;
                root \(directory)/www;
                \(locations)
              }
              server {
                listen 127.0.0.1:\(securePort) ssl http2; server_name expired.example;
                ssl_certificate \(directory)/expired.pem; ssl_certificate_key \(directory)/server.key;
                root \(directory)/www;
              }
              server {
                listen 127.0.0.1:\(securePort) ssl http2; server_name unsigned.example;
                ssl_certificate \(directory)/own.pem; ssl_certificate_key \(directory)/own.key;
                root \(directory)/www;
              }
            }
            """
        try Data(configuration.utf8).write(to: URL(fileURLWithPath: directory + "/nginx.conf"))
        process.executableURL = URL(fileURLWithPath: "/usr/sbin/nginx")
        process.arguments = ["-e", directory + "/error.log", "-p", directory, "-c", directory + "/nginx.conf"]
        try process.run()
        try waitUntilReady()
    }

    func stop() {
        process.terminate()
        process.waitUntilExit()
        do {
            try FileManager.default.removeItem(atPath: directory)
        } catch {
            Issue.record(error)
        }
    }

    /// The lines of the access log: connection, protocol, status and path of each request.
    func requests() throws -> [[String]] {
        // nginx writes a log line at the end of a request, possibly after the client has the response. It has one
        // worker, so the line of a later request follows those of all earlier ones.
        let marker = "/marker-\(UUID().uuidString)"
        _ = try isAnswered(marker)
        let log = try String(contentsOfFile: directory + "/access.log", encoding: .utf8)
        return log.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
            .filter { $0.last?.hasPrefix("/marker-") == false }
    }

    /// Sends a request and waits for the end of the response, if any.
    private func isAnswered(_ path: String) throws -> Bool {
        let client = try TestSocket.connect(address: "127.0.0.1", port: plainPort, isBlocking: true)
        defer { close(client) }
        let request = Array("GET \(path) HTTP/1.0\r\n\r\n".utf8)
        send(client, request, request.count, Int32(MSG_NOSIGNAL))
        var byte: UInt8 = 0
        var count = 0
        while recv(client, &byte, 1, 0) > 0 { count += 1 }
        return count > 0
    }

    /// Waits until a worker has responded. A master that is stopped earlier may leave a worker running.
    private func waitUntilReady() throws {
        for _ in 0..<2000 {
            if (try? isAnswered("/marker-start")) == true { return }
            guard process.isRunning else { break }
            usleep(5_000)
        }
        throw TestSocketError(call: "nginx (is it installed?)")
    }

    private static func makeCertificates(in directory: String) throws {
        let commands = [
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-authority "
                + "-keyout ca.key -out ca.pem",
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key "
                + "-out server.csr",
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days -1 -extfile names -out "
                + "expired.pem",
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
                + "-addext subjectAltName=DNS:unsigned.example -keyout own.key -out own.pem",
        ]
        try Data("subjectAltName=DNS:localhost,DNS:images.example,DNS:expired.example".utf8)
            .write(to: URL(fileURLWithPath: directory + "/names"))
        for command in commands {
            let openssl = Process()
            openssl.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
            openssl.arguments = command.split(separator: " ").map(String.init)
            openssl.currentDirectoryURL = URL(fileURLWithPath: directory)
            openssl.standardError = FileHandle.nullDevice
            openssl.standardOutput = FileHandle.nullDevice
            try openssl.run()
            openssl.waitUntilExit()
            guard openssl.terminationStatus == 0 else { throw TestSocketError(call: "openssl \(command)") }
        }
    }
}

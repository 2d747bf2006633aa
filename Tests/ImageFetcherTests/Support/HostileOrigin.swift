import Foundation
import Glibc
import Testing

/// An origin on loopback with mutated responses over TLS, with one port for HTTP/1.1 and one for HTTP/2. It is a Python
/// process, because Swift's standard library has no TLS and nginx sends no malformed frames.
final class HostileOrigin {
    enum Version: Int, CaseIterable {
        case http1, http2
    }

    let image = TestImage.png(count: 300)
    /// The self-signed certificate.
    let caFile: String
    private let directory: String
    private let process = Process()
    // The program exits when its standard input closes, so that it does not outlive a test that crashes.
    private let input = Pipe()
    private let output = Pipe()
    private var ports: [UInt16] = []

    init() throws {
        directory = NSTemporaryDirectory() + "thumbcached-hostile-\(UUID().uuidString)"
        caFile = directory + "/own.pem"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try Self.makeCertificate(in: directory)
        process.executableURL = URL(fileURLWithPath: "/usr/bin/python3")
        let hex = image.map { String(UInt16($0) + 0x100, radix: 16).dropFirst() }.joined()
        process.arguments = ["-I", "-c", Self.script, caFile, directory + "/own.key", hex]
        process.standardInput = input
        process.standardOutput = output
        try process.run()
        ports = readLine().split(separator: " ").compactMap { UInt16($0) }
        guard ports.count == Version.allCases.count else {
            stop()
            throw TestSocketError(call: "python3 (is it installed?)")
        }
    }

    /// The URL of the response that the seed mutates. Multiples of ten leave it unchanged.
    func url(_ version: Version, seed: Int) -> String { "https://127.0.0.1:\(ports[version.rawValue])/~~\(seed)~" }

    /// Kills the process. Records an issue if it had already exited, because then its program has an error.
    func stop() {
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
        #expect(process.terminationReason == .uncaughtSignal && process.terminationStatus == SIGKILL)
        do {
            try input.fileHandleForWriting.close()
            try output.fileHandleForReading.close()
            try FileManager.default.removeItem(atPath: directory)
        } catch {
            Issue.record(error)
        }
    }

    /// The first line of the process's output, or what arrives within a minute.
    private func readLine() -> String {
        var line: [UInt8] = []
        var byte: UInt8 = 0
        var ready = pollfd(fd: output.fileHandleForReading.fileDescriptor, events: Int16(POLLIN), revents: 0)
        while poll(&ready, 1, 60_000) > 0, read(ready.fd, &byte, 1) == 1, byte != UInt8(ascii: "\n") {
            line.append(byte)
        }
        return String(decoding: line, as: UTF8.self)
    }

    private static func makeCertificate(in directory: String) throws {
        let openssl = Process()
        openssl.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
        let command =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
            + "-addext subjectAltName=IP:127.0.0.1 -keyout own.key -out own.pem"
        openssl.arguments = command.split(separator: " ").map(String.init)
        openssl.currentDirectoryURL = URL(fileURLWithPath: directory)
        openssl.standardError = FileHandle.nullDevice
        try openssl.run()
        openssl.waitUntilExit()
        guard openssl.terminationStatus == 0 else { throw TestSocketError(call: "openssl \(command)") }
    }
}

import Glibc
import LinuxSupport
import NIOCore

/// Checks thumbcached-http: its configuration, its listeners, and the mode of its signing key.
struct HTTPCheck: DoctorCheck {
    let name = "http"
    private static let startAdvice = "see systemctl status thumbcached-http.service"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        let file = daemon.httpConfigurationFile
        let settings: ConfigurationLines
        do throws(PlainFileError) {
            settings = ConfigurationLines(try readTextFile(file, limit: 1 << 20))
        } catch {
            return error.isMissing ? [.ok("not used: \(file) does not exist")] : [.unknown("\(file) \(error)")]
        }
        let listeners = ["figures.listen", "images.listen"].compactMap { key in
            settings[key].flatMap { $0.isEmpty ? nil : (key: key, address: $0) }
        }
        return configuration(file, daemon) + listeners.map { listener($0.key, $0.address) } + key(settings)
    }

    private func configuration(_ file: String, _ daemon: InstalledDaemon) -> [Diagnostic] {
        do throws(SystemError) {
            let (isValid, lines) = try daemon.checkConfiguration("thumbcached-http", ["--config", file])
            if isValid { return [.ok("\(file) is valid")] + lines.map { .note($0) } }
            guard !lines.isEmpty else { return [.unknown("thumbcached-http --check-config did not finish")] }
            return lines.map {
                .wrong($0, "correct it (man thumbcached-http), then run systemctl restart thumbcached-http.service")
            }
        } catch {
            return [.unknown("cannot run thumbcached-http --check-config: \(error)", "install thumbcached-http")]
        }
    }

    private func listener(_ key: String, _ address: String) -> Diagnostic {
        guard let target = Self.socketAddress(address) else { return .unknown("\(key): \(address) is no address") }
        do throws(SystemError) {
            guard try Self.sendsHTTP(target) else {
                return .wrong("\(key): no HTTP response from \(address) within 5 s", Self.startAdvice)
            }
            return .ok("\(key): \(address) responds")
        } catch {
            let what = "\(key): \(address): \(error.reason)"
            return error.code == EACCES ? .unknown(what) : .wrong(what, Self.startAdvice)
        }
    }

    private func key(_ settings: ConfigurationLines) -> [Diagnostic] {
        guard settings["images.per-user"] == "signed", let path = settings["images.signing-key"], !path.isEmpty else {
            return []
        }
        let advice = "see \"Signed URLs\" in docs/http.md"
        return [
            FileRule(owner: nil, refused: 0o077, required: 0o400, kind: S_IFREG)
                .check(path, missing: .wrong("\(path) does not exist", advice))
        ]
    }

    /// A path, or a literal address with a port.
    private static func socketAddress(_ text: String) -> SocketAddress? {
        do {
            if text.hasPrefix("/") { return try SocketAddress(unixDomainSocketPath: text) }
            guard let colon = text.lastIndex(of: ":"), let port = Int(text[colon...].dropFirst()) else { return nil }
            return try SocketAddress(ipAddress: text[..<colon].filter { !"[]".contains($0) }, port: port)
        } catch {
            return nil
        }
    }

    /// Returns whether the server responds to a request with HTTP/1.1, whatever the status.
    private static func sendsHTTP(_ address: SocketAddress) throws(SystemError) -> Bool {
        let descriptor = socket(CInt(address.protocol.rawValue), CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        defer { close(descriptor) }
        // A listener whose process is stuck accepts connections and sends nothing. Also limits connect(2).
        var limit = timeval(tv_sec: 5, tv_usec: 0)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
        }
        guard address.withSockAddr({ connect(descriptor, $0, socklen_t($1)) }) == 0 else {
            throw SystemError("connect")
        }
        let request = "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        guard send(descriptor, request, request.utf8.count, CInt(MSG_NOSIGNAL)) == request.utf8.count else {
            throw SystemError("send")
        }
        let expected = Array("HTTP/1.1 ".utf8)
        var received = [UInt8](repeating: 0, count: expected.count)
        let count = recv(descriptor, &received, received.count, CInt(MSG_WAITALL))
        guard count >= 0 || errno == EAGAIN else { throw SystemError("receive") }
        return received == expected
    }
}

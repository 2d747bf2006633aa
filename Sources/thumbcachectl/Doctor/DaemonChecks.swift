import Glibc
import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// What the daemon itself says of the file.
struct ConfigurationCheck: DoctorCheck {
    let name = "configuration"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        let file = daemon.configurationFile
        if access(file, F_OK) == 0, access(file, R_OK) != 0 {
            return [.unknown("\(file): permission denied")]
        }
        let named = daemon.namedConfiguration.map { ["--config", $0] } ?? []
        do throws(SystemError) {
            let finished = try daemon.run("thumbcached", ["--check-config"] + named)
            let lines = finished.lines.map { line in
                line.hasPrefix("thumbcached: ") ? String(line.dropFirst("thumbcached: ".count)) : line
            }
            if finished.status == 0 {
                return [.ok(lines.first ?? "\(file) is good")] + lines.dropFirst().map { .note($0) }
            }
            let remedy = daemon.reloadAdvice
            guard !lines.isEmpty else { return [.unknown("--check-config did not end")] }
            // What the caller may not read, such as a secret, the daemon may.
            let mayRead = geteuid() == 0 || geteuid() == daemon.owner
            return lines.map { line in
                !mayRead && line.contains("Permission denied") ? .unknown(line) : .wrong(line, remedy)
            }
        } catch {
            return [.unknown("the daemon, which would check it, could not be asked: \(error)", "install thumbcached")]
        }
    }
}

/// Whether somebody answers.
struct SocketCheck: DoctorCheck {
    let name = "socket"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        do throws(Failure) {
            let info = try await daemon.environment.ask(words("INFO", "server"), daemon.options, within: 10).text ?? ""
            let version = info.split(whereSeparator: \.isNewline).first { $0.hasPrefix("thumbcached_version:") }
            let running = version?.split(separator: ":").last.map { ", version \($0)" } ?? ""
            return [.ok("the daemon at \(daemon.socket) answers\(running)")]
        } catch {
            return [.wrong(error.message, daemon.startAdvice)]
        }
    }
}

/// Whether every origin can be had an answer of: each is asked for a picture that it need not have.
struct OriginsCheck: DoctorCheck {
    let name = "origins"

    /// A user for as long as the question takes, and a profile that nobody has.
    private static let profile = ThumbcacheID("thumbcachectl-doctor")
    private static var user: ThumbcacheID { ThumbcacheID("thumbcachectl-doctor-\(getpid())") }

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        do throws(Failure) {
            let names = try await daemon.environment.withDaemon(daemon.options, within: 10) { daemon throws(Failure) in
                let info = try await daemon.ask { client throws(ThumbcacheError) in
                    try await client.reply(to: ThumbcacheRequest(words("INFO", "fetch"))).value
                }
                return (info.text ?? "").split(whereSeparator: \.isNewline).compactMap { line in
                    line.hasPrefix("origin_") ? String(line.dropFirst(7).prefix { $0 != ":" }) : nil
                }
            }
            guard !names.isEmpty else {
                return [.note("none is configured: nothing is downloaded", "name one in \(daemon.configurationFile)")]
            }
            var diagnostics: [Diagnostic] = []
            for name in names {
                diagnostics.append(Self.diagnostic(of: name, await ask(name, daemon), log: daemon.fetcherLog))
            }
            return diagnostics
        } catch {
            return [.unknown("the daemon, which asks them, could not be reached", daemon.startAdvice)]
        }
    }

    /// Whether it has a picture.
    private func ask(_ origin: String, _ daemon: InstalledDaemon) async -> Result<Bool, ThumbcacheError> {
        do {
            return try await daemon.environment.withDaemon(daemon.options, within: 30) { daemon in
                do {
                    return try await daemon.client.withConnection { connection in
                        // It ends with the connection at the latest, whatever becomes of this program.
                        try await connection.logInHolding(Self.user, origin: origin)
                        let answer: Result<Bool, ThumbcacheError>
                        do throws(ThumbcacheError) {
                            answer = .success(try await connection.get(Self.user, Self.profile) != nil)
                        } catch {
                            answer = .failure(error)
                        }
                        _ = try await connection.logOut(Self.user)
                        return answer
                    }
                } catch let error as ThumbcacheError {
                    return .failure(error)
                } catch {
                    return .failure(.notRunning)
                }
            }
        } catch {
            return .failure(.notRunning)
        }
    }

    static func diagnostic(of origin: String, _ answer: Result<Bool, ThumbcacheError>, log: String) -> Diagnostic {
        switch answer {
        case .success(let hasPicture):
            return .ok("\(origin) answers: it has \(hasPicture ? "a" : "no") picture of a profile that nobody has")
        case .failure(.server(let code, let message)):
            let said = "\(origin): \(code) \(message)"
            let isForbidden = message.contains("403") || message.contains("451")
            switch code {
            case .unauthorized: return .note("\(said). It answers, and wants a token", "log a user in with one")
            case .origin where isForbidden: return .note("\(said). It answers, and may want a token")
            case .badImage, .tooLarge:
                return .note("\(said). It answers, for a profile that nobody has, with no picture")
            case .busy, .shuttingDown: return .unknown(said, "try again")
            case .denied:
                return .wrong(
                    said, "if it is meant to be in your own network: allow-private-addresses = true in its section")
            default: return .wrong(said, "see \(log), and its url in the configuration")
            }
        case .failure(let error):
            return .unknown("\(origin): the daemon did not say (\(error))", "see its log")
        }
    }
}

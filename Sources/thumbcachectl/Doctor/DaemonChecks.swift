import Glibc
import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// Validates the configuration with `thumbcached --check-config`.
struct ConfigurationCheck: DoctorCheck {
    let name = "configuration"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        let file = daemon.configurationFile
        if access(file, F_OK) == 0, access(file, R_OK) != 0 {
            return [.unknown("\(file): permission denied")]
        }
        let named = daemon.namedConfiguration.map { ["--config", $0] } ?? []
        do throws(SystemError) {
            let (isValid, lines) = try daemon.checkConfiguration("thumbcached", named)
            if isValid {
                return [.ok(lines.first ?? "\(file) is valid")] + lines.dropFirst().map { .note($0) }
            }
            let remedy = daemon.reloadAdvice
            guard !lines.isEmpty else { return [.unknown("--check-config did not finish")] }
            // The daemon may have access to files that the caller cannot read, such as a secret.
            let mayRead = geteuid() == 0 || geteuid() == daemon.owner
            return lines.map { line in
                !mayRead && line.contains("Permission denied") ? .unknown(line) : .wrong(line, remedy)
            }
        } catch {
            return [.unknown("cannot run thumbcached --check-config: \(error)", "install thumbcached")]
        }
    }
}

struct SocketCheck: DoctorCheck {
    let name = "socket"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        do throws(Failure) {
            let info =
                try await daemon.environment.reply(
                    to: words("INFO", "server"), daemon.options, within: 10
                ).text ?? ""
            let version = info.split(whereSeparator: \.isNewline).first { $0.hasPrefix("thumbcached_version:") }
            let running = version?.split(separator: ":").last.map { ", version \($0)" } ?? ""
            return [.ok("the daemon at \(daemon.socket) responds\(running)")]
        } catch {
            return [.wrong(error.message, daemon.startAdvice)]
        }
    }
}

/// Requests an image from each origin and checks that the origin responds, with or without an image.
struct OriginsCheck: DoctorCheck {
    let name = "origins"

    /// The user is logged in only during the check. No origin is expected to know the profile.
    private static let profile = ThumbcacheID("thumbcachectl-doctor")
    private static var user: ThumbcacheID { ThumbcacheID("thumbcachectl-doctor-\(getpid())") }

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        do throws(Failure) {
            let names = try await daemon.environment.withDaemon(daemon.options, within: 10) { daemon throws(Failure) in
                let info = try await daemon.perform { client throws(ThumbcacheError) in
                    try await client.reply(to: ThumbcacheRequest(words("INFO", "fetch"))).value
                }
                return (info.text ?? "").split(whereSeparator: \.isNewline).compactMap { line in
                    line.hasPrefix("origin_") ? String(line.dropFirst(7).prefix { $0 != ":" }) : nil
                }
            }
            guard !names.isEmpty else {
                return [
                    .note("no origin is configured: nothing is downloaded", "add one to \(daemon.configurationFile)")
                ]
            }
            var diagnostics: [Diagnostic] = []
            for name in names {
                diagnostics.append(Self.diagnostic(of: name, await probe(name, daemon), log: daemon.fetcherLog))
            }
            return diagnostics
        } catch {
            return [.unknown("cannot reach the daemon, which sends requests to the origins", daemon.startAdvice)]
        }
    }

    /// Returns whether the origin has an image of the profile.
    private func probe(_ origin: String, _ daemon: InstalledDaemon) async -> Result<Bool, ThumbcacheError> {
        do {
            return try await daemon.environment.withDaemon(daemon.options, within: 30) { daemon in
                do {
                    return try await daemon.client.withConnection { connection in
                        // HOLD ends the session with the connection, even if this program is killed.
                        try await connection.logInHolding(Self.user, origin: origin)
                        let result: Result<Bool, ThumbcacheError>
                        do throws(ThumbcacheError) {
                            result = .success(try await connection.get(Self.user, Self.profile) != nil)
                        } catch {
                            result = .failure(error)
                        }
                        _ = try await connection.logOut(Self.user)
                        return result
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

    static func diagnostic(of origin: String, _ result: Result<Bool, ThumbcacheError>, log: String) -> Diagnostic {
        switch result {
        case .success(let hasImage):
            return .ok("\(origin) responds, with \(hasImage ? "an" : "no") image for a nonexistent profile")
        case .failure(.server(let code, let message)):
            let said = "\(origin): \(code) \(message)"
            let isForbidden = message.contains("403") || message.contains("451")
            switch code {
            case .unauthorized: return .note("\(said). It responds, but requires a token", "log in with a token")
            case .origin where isForbidden: return .note("\(said). It responds, but may require a token")
            case .badImage, .tooLarge:
                return .note("\(said). It responds to a nonexistent profile, but not with an image")
            case .busy, .shuttingDown: return .unknown(said, "try again")
            case .denied:
                return .wrong(
                    said, "if it is in your own network, set allow-private-addresses = true in its section")
            default: return .wrong(said, "see \(log), and check the origin's url in the configuration")
            }
        case .failure(let error):
            return .unknown("\(origin): no result from the daemon (\(error))", "see its log")
        }
    }
}

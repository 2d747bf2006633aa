import Fleet
import LinuxSupport
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// A command that the daemon did not confirm; it must be retried.
struct DeliveryError: Error, CustomStringConvertible {
    let description: String
}

/// Performs commands.
protocol CommandSink: Sendable {
    /// Returns after the daemon's confirmation.
    /// - Returns: why the daemon permanently rejects the command, such as an id over its limit; nil on success.
    func execute(_ command: FleetCommand) async throws(DeliveryError) -> String?
}

/// The daemon of this machine; its `access.admins` must include this program's user.
struct DaemonSink: CommandSink {
    let client: ThumbcacheClient

    func execute(_ command: FleetCommand) async throws(DeliveryError) -> String? {
        do throws(ThumbcacheError) {
            switch command {
            case .logOut(let user, let session): _ = try await client.logOutInEveryUID(user, session: session)
            case .purge(let user, let profiles):
                _ = try await client.purgeInEveryUID(user, profiles: profiles.isEmpty ? nil : profiles)
            case .logOutAll: _ = try await client.logOutAllUsers()
            case .purgeAll: _ = try await client.purgeAllUsers()
            }
            return nil
        } catch .server(let code, let message) where code == .invalid || code == .tooLarge {
            // The request may exceed limits.arguments or limits.input of the daemon.
            if case .purge(let user, let profiles) = command, !profiles.isEmpty {
                let whole = FleetCommand.purge(user, profiles: [])
                // The daemon may also have closed the connection, which this client may notice with the next request only.
                do throws(DeliveryError) { return try await execute(whole) } catch { return try await execute(whole) }
            }
            guard code == .invalid else { throw DeliveryError(.server(code, message: message)) }
            // ERR means this command is invalid, or the daemon is too old for UID *.
            guard try await acceptsCommands() else {
                throw DeliveryError(description: "the daemon replied: ERR \(message)")
            }
            return oneLine(message)
        } catch {
            throw DeliveryError(error)
        }
    }

    /// Whether the daemon accepts a valid command: the logout of a random, unknown user.
    private func acceptsCommands() async throws(DeliveryError) -> Bool {
        let nobody = (0..<16).map { _ in UInt8.random(in: .min ... .max) }
        do throws(ThumbcacheError) {
            _ = try await client.logOutInEveryUID(ThumbcacheID(Hex.text(nobody).prefix(8).description))
            return true
        } catch .server(.invalid, _) {
            return false
        } catch {
            throw DeliveryError(error)
        }
    }
}

extension DeliveryError {
    fileprivate init(_ error: ThumbcacheError) {
        switch error {
        case .server(.denied, let message):
            description = "the relay's user is not an admin of the daemon; add it to access.admins: \(oneLine(message))"
        case .server(let code, let message): description = "the daemon replied: \(oneLine("\(code) \(message)"))"
        case .unreachable(let path, let code):
            description = "cannot connect to the daemon at \(path): \(SystemError("", code: code).reason)"
        case .notThumbcached: description = "another program than thumbcached listens on the daemon's socket"
        case .timeout: description = "the daemon timed out"
        default: description = "the connection to the daemon was lost"
        }
    }
}

import Fleet
import LinuxSupport
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// Why an order has no receipt: it is to be tried again.
struct OrderTrouble: Error, CustomStringConvertible {
    let description: String
}

/// Who carries out orders.
protocol CommandSink: Sendable {
    /// Returns behind the receipt.
    /// - Returns: why the daemon never will, such as an id that is longer than it takes; nil where it has.
    func carryOut(_ order: FleetCommand) async throws(OrderTrouble) -> String?
}

/// The daemon of this machine, whose admin this program has to be (`access.admins`).
struct DaemonOrders: CommandSink {
    let client: ThumbcacheClient

    func carryOut(_ order: FleetCommand) async throws(OrderTrouble) -> String? {
        do throws(ThumbcacheError) {
            switch order {
            case .logOut(let user, let session): _ = try await client.logOutInEveryUID(user, session: session)
            case .purge(let user, let profiles):
                _ = try await client.purgeInEveryUID(user, profiles: profiles.isEmpty ? nil : profiles)
            case .logOutEverybody: _ = try await client.logOutEverybody()
            case .purgeEverybody: _ = try await client.purgeEverybody()
            }
            return nil
        } catch .server(.invalid, let message) {
            // Either this order, or any: an older daemon knows no UID *.
            guard try await takesOrders() else { throw OrderTrouble(description: "the daemon says: ERR \(message)") }
            return oneLine(message)
        } catch {
            throw OrderTrouble(error)
        }
    }

    /// Whether it carries out what is certainly right: a log-out of somebody who cannot be there.
    private func takesOrders() async throws(OrderTrouble) -> Bool {
        let nobody = (0..<16).map { _ in UInt8.random(in: .min ... .max) }
        do throws(ThumbcacheError) {
            _ = try await client.logOutInEveryUID(ThumbcacheID(Hex.text(nobody).prefix(8).description))
            return true
        } catch .server(.invalid, _) {
            return false
        } catch {
            throw OrderTrouble(error)
        }
    }
}

extension OrderTrouble {
    fileprivate init(_ error: ThumbcacheError) {
        switch error {
        case .server(.denied, let message):
            description = "the relay's user is no admin of the daemon, add it to access.admins: \(oneLine(message))"
        case .server(let code, let message): description = "the daemon says: \(oneLine("\(code) \(message)"))"
        case .unreachable(let path, let code):
            description = "no daemon at \(path): \(SystemError("", code: code).reason)"
        case .notThumbcached: description = "it is not thumbcached that listens at the daemon's socket"
        case .timeout: description = "the daemon did not answer in time"
        default: description = "the connection to the daemon broke"
        }
    }
}

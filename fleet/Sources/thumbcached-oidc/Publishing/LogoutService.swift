import Fleet
import Logging
@_spi(Wire) import Thumbcache

/// Publishes commands to the fleet.
protocol CommandPublisher: Sendable {
    /// Returns the id of the entry once it is in the stream.
    func publish(_ command: FleetCommand) async throws(PublishFailure) -> String
}

/// A command that may not be in the stream.
struct PublishFailure: Error, CustomStringConvertible {
    let description: String
}

/// Processes a logout token: verifies it, reserves its id, publishes the logout, confirms the id.
///
/// If publishing fails, the id is released so that the provider can retry; otherwise the user would stay logged in.
/// Publishing twice is harmless.
actor LogoutService {
    private let verifier: TokenVerifier
    private let user: IDTemplate
    /// Nil for every session of the user.
    private let session: IDTemplate?
    private let publisher: any CommandPublisher
    private let log: Logger
    /// Seconds since 1970.
    private let now: @Sendable () -> Double
    private var memory: ReplayMemory

    init(
        _ verifier: TokenVerifier, user: IDTemplate, session: IDTemplate?, memory: ReplayMemory,
        publisher: any CommandPublisher, log: Logger, now: @escaping @Sendable () -> Double
    ) {
        (self.verifier, self.user, self.session, self.memory) = (verifier, user, session, memory)
        (self.publisher, self.log, self.now) = (publisher, log, now)
    }

    /// Verifies a token's signature.
    nonisolated func authenticate(_ text: [UInt8]) async throws(LogoutFailure) -> SignedPayload {
        try await verifier.authenticate(text)
    }

    /// Checks a token's claims and publishes its logout.
    func logOut(_ payload: SignedPayload) async throws(LogoutFailure) {
        let time = now()
        let token = try verifier.check(payload, at: time)
        let command = try command(token)
        switch memory.reserve(token.id, until: token.end, at: Int64(time)) {
        case .reserved: break
        case .busy: throw .unavailable("a request with this logout token is in progress")
        case .seen: throw .invalid("a logout token with this jti was already used")
        case .tooOld: throw .invalid("the logout token cannot be checked for replay: the clock was set back")
        case .full:
            log.error("logout refused: oidc.remembered is too low", metadata: [:])
            throw .unavailable("too many logouts")
        }
        do throws(PublishFailure) {
            let id = try await publisher.publish(command)
            memory.confirm(token.id)
            log.info("logout published", metadata: ["id": "\(id)"])
        } catch {
            memory.release(token.id, until: token.end)
            log.error("logout not published", metadata: ["reason": "\(error)"])
            throw .unavailable("the logout was not published")
        }
    }

    private func command(_ token: LogoutToken) throws(LogoutFailure) -> FleetCommand {
        let userID: ThumbcacheID
        do throws(MissingClaim) {
            userID = try user.id(token)
        } catch {
            throw .invalid("the logout token has no \(error.name), which oidc.user needs")
        }
        var sessionID: ThumbcacheID?
        do throws(MissingClaim) {
            sessionID = try session?.id(token)
        } catch {
            // Section 2.4: without a sid, all sessions of the user end.
        }
        let command = FleetCommand.logOut(userID, session: sessionID)
        do throws(EntryError) {
            try FleetEntry.check(command)
        } catch {
            throw .invalid("the logout that oidc.user makes of the logout token \(error)")
        }
        return command
    }
}

import Fleet
import Logging
@_spi(Wire) import Thumbcache

/// Who makes an order known to all machines.
protocol OrderPublisher: Sendable {
    /// Returns when it is in the stream, with its id there.
    func publish(_ order: FleetCommand) async throws(PublishFailure) -> String
}

/// Why an order may not be in the stream.
struct PublishFailure: Error, CustomStringConvertible {
    let description: String
}

/// What becomes of a logout token: it is verified, its id is taken, its order is published, its id is kept.
///
/// Where it is not published its id is given back: the provider may send it again. What was published twice does no
/// harm; what was not, and is refused the second time, would leave somebody logged in.
actor LogoutService {
    private let verifier: TokenVerifier
    private let user: IDTemplate
    /// Nil for every session of the user.
    private let session: IDTemplate?
    private let publisher: any OrderPublisher
    private let log: Logger
    /// Seconds since 1970.
    private let now: @Sendable () -> Double
    private var memory: ReplayMemory

    init(
        _ verifier: TokenVerifier, user: IDTemplate, session: IDTemplate?, memory: ReplayMemory,
        publisher: any OrderPublisher, log: Logger, now: @escaping @Sendable () -> Double
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
        let order = try order(token)
        switch memory.take(token.id, until: token.end, at: Int64(time)) {
        case .taken: break
        case .busy: throw .unavailable("a request with this logout token is under way")
        case .seen: throw .invalid("a logout token with this jti was here before")
        case .tooOld: throw .invalid("the logout token is from before this machine's clock was set back")
        case .full:
            log.error("no more log-outs are taken: oidc.remembered is too low for so many", metadata: [:])
            throw .unavailable("too many log-outs at once")
        }
        do throws(PublishFailure) {
            let id = try await publisher.publish(order)
            memory.keep(token.id)
            log.info("published", metadata: ["id": "\(id)"])
        } catch {
            memory.giveBack(token.id, until: token.end)
            log.error("a log-out is not published", metadata: ["reason": "\(error)"])
            throw .unavailable("the log-out could not be published")
        }
    }

    private func order(_ token: LogoutToken) throws(LogoutFailure) -> FleetCommand {
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
            // Section 2.4: without a sid it is every session of the user that ends.
        }
        let order = FleetCommand.logOut(userID, session: sessionID)
        do throws(EntryError) {
            try FleetEntry.check(order)
        } catch {
            throw .invalid("the log-out that oidc.user makes of the logout token \(error)")
        }
        return order
    }
}

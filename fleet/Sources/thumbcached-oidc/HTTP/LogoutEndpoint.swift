import HTTPTypes
import HummingbirdCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// `POST /backchannel-logout`, from the request's head to its answer.
struct LogoutEndpoint: Sendable {
    static let path = "/backchannel-logout"

    /// Nil where no provider is configured.
    private let service: LogoutService?
    private let limits: HTTPLimits
    private let log: Logger
    /// Milliseconds of a clock that nobody sets.
    private let now: @Sendable () -> Int64
    private let limiter: NIOLockedValueBox<RefusalLimiter>

    init(_ service: LogoutService?, limits: HTTPLimits, log: Logger, now: @escaping @Sendable () -> Int64) {
        (self.service, self.limits, self.log, self.now) = (service, limits, log, now)
        limiter = NIOLockedValueBox(RefusalLimiter(perMinute: limits.refusals))
    }

    /// - Throws: when the body does not come to its end.
    func respond(to request: Request, from peer: SocketAddress?) async throws -> Reply {
        guard request.uri.path == Self.path else { return .refused(.notFound, "logout tokens go to \(Self.path)") }
        guard request.method == .post else {
            return .refused(.methodNotAllowed, "a logout token is sent by POST", [.allow: "POST"])
        }
        guard let service else { return .refused(.notImplemented, "no identity provider is configured") }
        var isSigned = false
        let reply = try await answer(request, service, &isSigned)
        guard reply.status != .ok else { return reply }
        if let wait = limiter.withLockedValue({ $0.refuse(ClientAddress.network(of: peer), at: now()) }) {
            // A provider is always told what became of its token, whatever else comes from its address.
            guard !isSigned else { return reply }
            return .unavailable(
                .tooManyRequests, "too many requests of this address were refused", [.retryAfter: "\(wait)"])
        }
        let client = ClientAddress.client(of: peer, forwarded: request.headers[values: .forwardedFor])
        log.notice("a log-out is refused", metadata: ["client": "\(client)", "reason": "\(reply.description)"])
        return reply
    }

    /// - Parameter isSigned: set once the token's signature is verified.
    private func answer(
        _ request: Request, _ service: LogoutService, _ isSigned: inout Bool
    ) async throws -> Reply {
        guard isForm(request.headers[.contentType]) else {
            return .refused(.badRequest, "the body has to be application/x-www-form-urlencoded")
        }
        let tooLarge = Reply.refused(.contentTooLarge, "the body has more than \(limits.body) bytes")
        if let length = request.headers[.contentLength].flatMap({ Int($0) }), length > limits.body { return tooLarge }
        let body: ByteBuffer
        do {
            body = try await request.body.collect(upTo: limits.body)
        } catch is NIOTooManyBytesError {
            return tooLarge
        }
        do throws(LogoutFailure) {
            let payload = try await service.authenticate(try LogoutForm.token(body.readableBytesView))
            isSigned = true
            try await service.logOut(payload)
            return .done
        } catch {
            return Reply(error)
        }
    }

    /// With or without parameters, of which there is none that would change anything.
    private func isForm(_ type: String?) -> Bool {
        let name = (type ?? "").prefix { $0 != ";" && $0 != " " }
        return name.lowercased() == "application/x-www-form-urlencoded"
    }
}

extension HTTPField.Name {
    fileprivate static var forwardedFor: Self { HTTPField.Name("X-Forwarded-For")! }
}

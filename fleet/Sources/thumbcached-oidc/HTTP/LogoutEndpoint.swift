import HTTPTypes
import HummingbirdCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// `POST /backchannel-logout`, which accepts logout tokens.
struct LogoutEndpoint: Sendable {
    static let path = "/backchannel-logout"

    /// Nil without a provider.
    private let service: LogoutService?
    private let limits: HTTPLimits
    private let log: Logger
    /// Milliseconds of a monotonic clock.
    private let now: @Sendable () -> Int64
    private let limiter: NIOLockedValueBox<RefusalLimiter>

    init(_ service: LogoutService?, limits: HTTPLimits, log: Logger, now: @escaping @Sendable () -> Int64) {
        (self.service, self.limits, self.log, self.now) = (service, limits, log, now)
        limiter = NIOLockedValueBox(RefusalLimiter(perMinute: limits.refusals))
    }

    /// - Throws: if the body is incomplete.
    func respond(to request: Request, from peer: SocketAddress?) async throws -> Reply {
        guard request.uri.path == Self.path else { return .refused(.notFound, "not found; use \(Self.path)") }
        guard request.method == .post else {
            return .refused(.methodNotAllowed, "method not allowed; use POST", [.allow: "POST"])
        }
        guard let service else { return .refused(.notImplemented, "no identity provider is configured") }
        var isSigned = false
        let reply = try await reply(to: request, service, &isSigned)
        guard reply.status != .ok else { return reply }
        if let wait = limiter.withLockedValue({ $0.refuse(ClientAddress.network(of: peer), at: now()) }) {
            // A correctly signed token is never limited, whatever else its address sends.
            guard !isSigned else { return reply }
            return .unavailable(
                .tooManyRequests, "too many invalid requests from this address", [.retryAfter: "\(wait)"])
        }
        let client = ClientAddress.client(of: peer, forwarded: request.headers[values: .forwardedFor])
        log.notice("logout rejected", metadata: ["client": "\(client)", "reason": "\(reply.description)"])
        return reply
    }

    /// - Parameter isSigned: set once the token's signature is verified.
    private func reply(
        to request: Request, _ service: LogoutService, _ isSigned: inout Bool
    ) async throws -> Reply {
        guard isForm(request.headers[.contentType]) else {
            return .refused(.badRequest, "the Content-Type must be application/x-www-form-urlencoded")
        }
        let tooLarge = Reply.refused(.contentTooLarge, "the body exceeds \(limits.body) bytes")
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

    /// Ignores parameters, since the type defines none.
    private func isForm(_ type: String?) -> Bool {
        let name = (type ?? "").prefix { $0 != ";" && $0 != " " }
        return name.lowercased() == "application/x-www-form-urlencoded"
    }
}

extension HTTPField.Name {
    fileprivate static var forwardedFor: Self { HTTPField.Name("X-Forwarded-For")! }
}

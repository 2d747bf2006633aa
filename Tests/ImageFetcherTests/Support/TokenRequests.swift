import LinuxSupport
import Testing

@testable import CacheCore
@testable import ImageFetcher

extension TokenRequest {
    static func to(
        _ url: String, uid: UInt32 = 1000, origin name: String = "test", refresh: String = "r1", secret: String? = nil,
        private allowPrivateAddresses: Bool = true, timeout: Int64 = 600_000, caFile: String = ""
    ) -> TokenRequest {
        var origin = Origin.test(name, private: allowPrivateAddresses, timeout: timeout)
        origin.caFile = caFile
        let endpoint = TokenEndpoint(url: url, clientID: "the client", clientSecret: secret.map { Secret($0.utf8) })
        return TokenRequest(uid: uid, origin: origin, endpoint: endpoint, refreshToken: Secret(refresh.utf8))
    }
}

extension CurlImageFetcher {
    /// Asks for a token and waits for the outcome.
    func token(
        _ url: String, origin: String = "test", refresh: String = "r1", secret: String? = nil,
        private allowPrivateAddresses: Bool = true, timeout: Int64 = 600_000, caFile: String = ""
    ) async throws -> Result<TokenGrant, TransferFailure> {
        let request = TokenRequest.to(
            url, origin: origin, refresh: refresh, secret: secret, private: allowPrivateAddresses, timeout: timeout,
            caFile: caFile)
        return try await token(request)
    }

    /// The same; one that is not sent, because a breaker is open, ends like one that is found so when its turn comes.
    func token(_ request: TokenRequest) async throws -> Result<TokenGrant, TransferFailure> {
        try await withCheckedThrowingContinuation { continuation in
            do {
                _ = try self.refresh(request) { continuation.resume(returning: $0) }
            } catch TransferFailure.notAsked(let sentence) {
                continuation.resume(returning: .failure(.notAsked(sentence)))
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }
}

extension Result<TokenGrant, TransferFailure> {
    var kind: String {
        switch self {
        case .success: "grant"
        case .failure(.refused): "refused"
        case .failure(.timedOut): "timedOut"
        case .failure(.origin): "origin"
        case .failure(.notAsked): "notAsked"
        case .failure(.unusable): "unusable"
        case .failure(.denied): "denied"
        case .failure(.busy): "busy"
        case .failure(.shuttingDown): "shuttingDown"
        }
    }

    var sentence: String {
        switch self {
        case .failure(.refused(let text)), .failure(.timedOut(let text)), .failure(.origin(let text)),
            .failure(.denied(let text)), .failure(.busy(let text)), .failure(.notAsked(let text)),
            .failure(.unusable(let text, _)):
            text
        case .success, .failure(.shuttingDown): ""
        }
    }
}

func check(
    _ outcome: Result<TokenGrant, TransferFailure>, _ kind: String, _ location: SourceLocation = #_sourceLocation
) {
    #expect(outcome.kind == kind, "\(outcome)", sourceLocation: location)
}

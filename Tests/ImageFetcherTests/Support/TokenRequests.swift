import LinuxSupport
import Testing

@testable import CacheCore
@testable import ImageFetcher

extension TokenRequest {
    static func to(
        _ url: String, account: UInt32 = 1000, origin name: String = "test", refresh: String = "r1",
        secret: String? = nil,
        private allowPrivateAddresses: Bool = true, timeout: Int64 = 600_000, caFile: String = ""
    ) -> TokenRequest {
        var origin = Origin.test(name, private: allowPrivateAddresses, timeout: timeout)
        origin.caFile = caFile
        let endpoint = TokenEndpoint(url: url, clientID: "the client", clientSecret: secret.map { Secret($0.utf8) })
        return TokenRequest(account: account, origin: origin, endpoint: endpoint, refreshToken: Secret(refresh.utf8))
    }
}

extension CurlImageFetcher {
    /// Requests a token and waits for the outcome.
    func token(
        _ url: String, origin: String = "test", refresh: String = "r1", secret: String? = nil,
        private allowPrivateAddresses: Bool = true, timeout: Int64 = 600_000, caFile: String = ""
    ) async throws -> Result<TokenGrant, FetchFailure> {
        let request = TokenRequest.to(
            url, origin: origin, refresh: refresh, secret: secret, private: allowPrivateAddresses, timeout: timeout,
            caFile: caFile)
        return try await token(request)
    }

    /// Requests a token and waits for the outcome. Rejection by an open breaker is a failure like any other.
    func token(_ request: TokenRequest) async throws -> Result<TokenGrant, FetchFailure> {
        try await withCheckedThrowingContinuation { continuation in
            do {
                _ = try self.refresh(request) { continuation.resume(returning: $0) }
            } catch let failure as FetchFailure where failure.kind == .circuitOpen {
                continuation.resume(returning: .failure(failure))
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }
}

extension Result<TokenGrant, FetchFailure> {
    /// The kind of failure, or "grant", for comparisons. A failure with a refresh token is "refresh only".
    var kind: String {
        switch self {
        case .success: "grant"
        case .failure(let failure): failure.refreshToken == nil ? "\(failure.kind)" : "refresh only"
        }
    }

    /// The reason of a failure; empty for a grant.
    var reason: String { if case .failure(let failure) = self { failure.reason } else { "" } }
}

func check(
    _ outcome: Result<TokenGrant, FetchFailure>, _ kind: String, _ location: SourceLocation = #_sourceLocation
) {
    #expect(outcome.kind == kind, "\(outcome)", sourceLocation: location)
}

import AsyncHTTPClient
import NIOCore
import NIOHTTP1
@_spi(Wire) import Thumbcache

/// Downloads a JWK set from the provider's JWKS endpoint.
struct HTTPSKeyDownload: KeyDownload {
    let client: HTTPClient
    let url: String
    /// Time limit of a download, including the name lookup.
    let limit: Duration

    /// Maximum bytes of a response; a key with its certificates has about 5,000.
    static let longestResponse = 256 << 10

    func download() async throws(KeyFailure) -> [UInt8] {
        let result: Result<[UInt8], KeyFailure>
        do throws(ThumbcacheError) {
            result = try await within(limit) { () async throws(ThumbcacheError) in try await self.request() }
        } catch {
            throw KeyFailure("the JWKS endpoint timed out")
        }
        return try result.get()
    }

    private func request() async throws(ThumbcacheError) -> Result<[UInt8], KeyFailure> {
        do {
            var request = HTTPClientRequest(url: url)
            request.headers.add(name: "Accept", value: "application/jwk-set+json, application/json")
            request.headers.add(name: "User-Agent", value: "thumbcached-oidc")
            let response = try await client.execute(request, deadline: .distantFuture)
            guard response.status == .ok else {
                return .failure(KeyFailure("the JWKS endpoint answered \(response.status.code)"))
            }
            let body = try await response.body.collect(upTo: Self.longestResponse)
            return .success(Array(body.readableBytesView))
        } catch is NIOTooManyBytesError {
            return .failure(KeyFailure("the JWKS endpoint's response has more than \(Self.longestResponse) bytes"))
        } catch {
            // Cancelled by the time limit, which is the reason to report.
            if Task.isCancelled { throw .cancelled }
            return .failure(KeyFailure("request to the JWKS endpoint failed: \(error)"))
        }
    }
}

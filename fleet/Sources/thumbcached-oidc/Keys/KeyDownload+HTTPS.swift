import AsyncHTTPClient
import NIOCore
import NIOHTTP1
@_spi(Wire) import Thumbcache

/// A JWK set from the provider's JWKS endpoint.
struct HTTPSKeyDownload: KeyDownload {
    let client: HTTPClient
    let url: String
    /// Of one answer, from the first look at its host's name to its last byte.
    let limit: Duration

    /// Of one answer, in bytes: a key with its certificates has some 5,000.
    static let longestAnswer = 256 << 10

    func download() async throws(KeyFailure) -> [UInt8] {
        let answer: Result<[UInt8], KeyFailure>
        do throws(ThumbcacheError) {
            answer = try await within(limit) { () async throws(ThumbcacheError) in try await self.answer() }
        } catch {
            throw KeyFailure("the JWKS endpoint did not answer in time")
        }
        return try answer.get()
    }

    private func answer() async throws(ThumbcacheError) -> Result<[UInt8], KeyFailure> {
        do {
            var request = HTTPClientRequest(url: url)
            request.headers.add(name: "Accept", value: "application/jwk-set+json, application/json")
            request.headers.add(name: "User-Agent", value: "thumbcached-oidc")
            let response = try await client.execute(request, deadline: .distantFuture)
            guard response.status == .ok else {
                return .failure(KeyFailure("the JWKS endpoint answered \(response.status.code)"))
            }
            let body = try await response.body.collect(upTo: Self.longestAnswer)
            return .success(Array(body.readableBytesView))
        } catch is NIOTooManyBytesError {
            return .failure(KeyFailure("the JWKS endpoint's answer has more than \(Self.longestAnswer) bytes"))
        } catch {
            // By its limit: that is the reason, and not what was cut off by it.
            if Task.isCancelled { throw .cancelled }
            return .failure(KeyFailure("the JWKS endpoint cannot be asked: \(error)"))
        }
    }
}

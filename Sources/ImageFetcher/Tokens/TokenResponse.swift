import CacheCore
import JSONReader
import LinuxSupport
import Origins

/// Reads the response of a token endpoint (RFC 6749 sections 5.1 and 5.2).
///
/// A new refresh token is used even if other members are invalid, because the endpoint may have revoked the old one.
enum TokenResponse {
    /// The codes of RFC 6749 section 5.2. Other codes are not shown, because they could contain a token.
    private static let errorCodes: Set<String> = [
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
        "invalid_scope",
    ]

    static func read(
        _ bytes: UnsafeRawBufferPointer, status: Int, host: String, longestToken: Int
    ) -> Result<TokenGrant, FetchFailure> {
        switch status {
        case 200:
            return grant(bytes, host: host, longestToken: longestToken)
        case 400, 401, 403:
            let code = JSONObject(bytes, members: ["error"])?.withText("error") { text in
                errorCodes.first { text.elementsEqual($0.utf8) }
            }
            let known = code ?? "HTTP status \(status)"
            return .failure(.unauthorized("the token endpoint at \(host) refused to renew the token: \(known)"))
        default:
            return .failure(.origin("HTTP status \(status) from the token endpoint at \(host)"))
        }
    }

    private static func grant(
        _ bytes: UnsafeRawBufferPointer, host: String, longestToken: Int
    ) -> Result<TokenGrant, FetchFailure> {
        let response = "the response of the token endpoint at \(host)"
        let names: Set = ["access_token", "token_type", "expires_in", "refresh_token"]
        guard let object = JSONObject(bytes, members: names) else {
            return .failure(.origin("\(response) is not a JSON object, has a member twice, or is nested too deep"))
        }
        let refresh = object.withText("refresh_token") { token($0, longestToken, TokenText.isVisible) }
        func failure(_ flaw: String) -> Result<TokenGrant, FetchFailure> {
            .failure(.origin("\(response) \(flaw)", refreshToken: refresh))
        }
        guard object.hasText("token_type"), object.hasText("access_token") else {
            return failure("is not a JSON object with the strings access_token and token_type")
        }
        // Case-insensitive (section 7.1).
        guard object.withText("token_type", { $0.lazy.map(\.asciiLowercased).elementsEqual("bearer".utf8) }) == true
        else { return failure("has a token_type other than Bearer") }
        guard let access = object.withText("access_token", { token($0, longestToken, TokenText.isBearer) }) else {
            return failure("has an access_token that is not 1 to \(longestToken) characters of RFC 6750 section 2.1")
        }
        guard !object.has("refresh_token") || refresh != nil else {
            return failure(
                "has a refresh_token that is not 1 to \(longestToken) printable ASCII characters "
                    + "(RFC 6749 appendix A.17)")
        }
        return .success(TokenGrant(accessToken: access, lifetime: lifetime(object), refreshToken: refresh))
    }

    /// `expires_in` is a number (RFC 6749 appendix A.14); some endpoints send a string or a fraction. An invalid or
    /// negative value is ignored, because the tokens are usable without it.
    private static func lifetime(_ object: JSONObject) -> Int64? {
        // Capped at ten years.
        object.number("expires_in").flatMap { $0 >= 0 ? Int64(min($0, 315_360_000)) : nil }
    }

    private static func token(
        _ text: UnsafeRawBufferPointer, _ longest: Int, _ isToken: (UnsafeRawBufferPointer) -> Bool
    ) -> Secret? {
        text.count <= max(1, longest) && isToken(text) ? Secret(text) : nil
    }
}

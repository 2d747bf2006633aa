import CacheCore
import JSONReader
import LinuxSupport
import Origins

/// What a token endpoint's answer comes to (RFC 6749 sections 5.1 and 5.2).
///
/// A member that cannot be used makes that member useless and not the others: by the time it is read here, the refresh
/// token that was sent may be good for nothing any more.
enum TokenAnswer {
    /// The codes of RFC 6749 section 5.2. No other is shown: it could be anything, even what was sent.
    private static let errorCodes: Set<String> = [
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
        "invalid_scope",
    ]

    /// - Parameter host: named in sentences.
    static func read(
        _ bytes: UnsafeRawBufferPointer, status: Int, host: String, longestToken: Int
    ) -> Result<TokenGrant, TransferFailure> {
        switch status {
        case 200:
            return grant(bytes, host: host, longestToken: longestToken)
        case 400, 401, 403:
            let code = JSONObject(bytes, members: ["error"])?.withText("error") { text in
                errorCodes.first { text.elementsEqual($0.utf8) }
            }
            let known = code ?? "HTTP status \(status)"
            return .failure(.refused("the token endpoint at \(host) refused to renew the token: \(known)"))
        default:
            return .failure(.origin("HTTP status \(status) from the token endpoint at \(host)"))
        }
    }

    private static func grant(
        _ bytes: UnsafeRawBufferPointer, host: String, longestToken: Int
    ) -> Result<TokenGrant, TransferFailure> {
        let answer = "the answer of the token endpoint at \(host)"
        let names: Set = ["access_token", "token_type", "expires_in", "refresh_token"]
        guard let object = JSONObject(bytes, members: names) else {
            // What exactly is wrong with it stays unsaid: what was found might be a token.
            return .failure(.origin("\(answer) is no JSON object, has a member twice, or is nested too deep"))
        }
        let refresh = object.withText("refresh_token") { token($0, longestToken, TokenText.isVisible) }
        func failure(_ flaw: String) -> Result<TokenGrant, TransferFailure> {
            .failure(refresh.map { .unusable("\(answer) \(flaw)", refreshToken: $0) } ?? .origin("\(answer) \(flaw)"))
        }
        guard object.hasText("token_type"), object.hasText("access_token") else {
            return failure("is no JSON object with the texts access_token and token_type")
        }
        // In any case (section 7.1).
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

    /// `expires_in` is a number (RFC 6749 appendix A.14); some endpoints write it as a text, or with a fraction. What
    /// is none, or negative, is as if it were not there: no reason to do without the tokens.
    private static func lifetime(_ object: JSONObject) -> Int64? {
        // Ten years are as good as for ever.
        object.number("expires_in").flatMap { $0 >= 0 ? Int64(min($0, 315_360_000)) : nil }
    }

    private static func token(
        _ text: UnsafeRawBufferPointer, _ longest: Int, _ isToken: (UnsafeRawBufferPointer) -> Bool
    ) -> Secret? {
        text.count <= max(1, longest) && isToken(text) ? Secret(text) : nil
    }
}

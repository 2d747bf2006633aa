import Glibc
import LinuxSupport
import ThumbnailCache

/// The answer of a token endpoint as it comes in, bounded, in memory that is wiped at the end.
final class TokenAnswerBuffer {
    private let memory: UnsafeMutableRawBufferPointer
    private var count = 0
    private var headerBytes = 0
    /// Whether it was cut off.
    private(set) var isTooLong = false

    /// - Parameter limit: bytes of the header, and of the body.
    init(limit: Int) {
        memory = .allocate(byteCount: limit, alignment: 1)
    }

    deinit {
        wipeMemory(memory)
        memory.deallocate()
    }

    /// False when there is too much of it.
    func countHeader(_ count: Int) -> Bool {
        headerBytes += count
        if headerBytes > memory.count { isTooLong = true }
        return !isTooLong
    }

    /// False when there is too much of it.
    func append(_ piece: UnsafeRawBufferPointer) -> Bool {
        guard piece.count <= memory.count - count else {
            isTooLong = true
            return false
        }
        UnsafeMutableRawBufferPointer(rebasing: memory[count...]).copyMemory(from: piece)
        count += piece.count
        return true
    }

    /// Lends the body. It must not be kept.
    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        body(UnsafeRawBufferPointer(rebasing: memory[..<count]))
    }
}

/// What a token endpoint's answer comes to (RFC 6749 sections 5.1 and 5.2).
///
/// A member that cannot be used makes that member useless and not the others: by the time it is read here, the refresh
/// token that was sent may be good for nothing any more.
enum TokenAnswer {
    /// What is wrong with the access token of an answer.
    private struct Flaw: Error {
        let sentence: String
    }

    /// The codes of RFC 6749 section 5.2. No other is shown: it could be anything, even what was sent.
    private static let errorCodes: Set<String> = [
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
        "invalid_scope",
    ]

    /// - Parameter host: named in sentences.
    static func read(
        _ bytes: UnsafeRawBufferPointer, status: Int, host: String, longestToken: Int
    ) -> Result<TokenGrant, TokenFailure> {
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
    ) -> Result<TokenGrant, TokenFailure> {
        let answer = "the answer of the token endpoint at \(host)"
        let names: Set = ["access_token", "token_type", "expires_in", "refresh_token"]
        guard let object = JSONObject(bytes, members: names) else {
            // What exactly is wrong with it stays unsaid: what was found might be a token.
            return .failure(.origin("\(answer) is no JSON object, has a member twice, or is nested too deep"))
        }
        let refresh = object.withText("refresh_token") { refreshToken($0, longestToken) }
        switch accessToken(object, longestToken) {
        case .failure(let flaw):
            let sentence = "\(answer) \(flaw.sentence)"
            return .failure(refresh.map { .unusable(sentence, refreshToken: $0) } ?? .origin(sentence))
        case .success(let access):
            guard !object.has("refresh_token") || refresh != nil else {
                return .failure(
                    .origin(
                        "\(answer) has a refresh_token that is not 1 to \(longestToken) printable ASCII characters "
                            + "(RFC 6749 appendix A.17)"))
            }
            return .success(TokenGrant(accessToken: access, lifetime: lifetime(object), refreshToken: refresh))
        }
    }

    private static func accessToken(_ object: JSONObject, _ longest: Int) -> Result<Secret, Flaw> {
        guard object.hasText("token_type"), object.hasText("access_token") else {
            return .failure(Flaw(sentence: "is no JSON object with the texts access_token and token_type"))
        }
        guard object.withText("token_type", isBearer) == true else {
            return .failure(Flaw(sentence: "has a token_type other than Bearer"))
        }
        guard let access = object.withText("access_token", { bearerToken($0, longest) }) else {
            return .failure(
                Flaw(
                    sentence: "has an access_token that is not 1 to \(longest) characters of RFC 6750 section 2.1"))
        }
        return .success(access)
    }

    /// `expires_in` is a number (RFC 6749 appendix A.14); some endpoints write it as a text, or with a fraction. What
    /// is none, or negative, is as if it were not there: no reason to do without the tokens.
    private static func lifetime(_ object: JSONObject) -> Int64? {
        // Ten years are as good as for ever.
        object.number("expires_in").flatMap { $0 >= 0 ? Int64(min($0, 315_360_000)) : nil }
    }

    /// In any case (RFC 6749 section 7.1).
    private static func isBearer(_ text: UnsafeRawBufferPointer) -> Bool {
        text.lazy.map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
            .elementsEqual("bearer".utf8)
    }

    /// 1*VSCHAR (RFC 6749 appendix A.17): it is only ever sent form-encoded.
    private static func refreshToken(_ text: UnsafeRawBufferPointer, _ longest: Int) -> Secret? {
        text.count <= max(1, longest) && TokenText.isVisible(text) ? Secret(text) : nil
    }

    private static func bearerToken(_ text: UnsafeRawBufferPointer, _ longest: Int) -> Secret? {
        text.count <= max(1, longest) && TokenText.isBearer(text) ? Secret(text) : nil
    }
}

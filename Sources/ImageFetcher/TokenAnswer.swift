import FoundationEssentials
import Glibc
import ThumbnailCache

/// The answer of a token endpoint as it comes in, bounded, in memory that is wiped at the end. What is read from it is another matter: see
/// ``TokenAnswer``.
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
        if let start = memory.baseAddress { explicit_bzero(start, memory.count) }
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
/// The decoder makes strings of the tokens on the way, and copies of its own, which are freed and not wiped: I11 does not reach that far.
enum TokenAnswer {
    private struct Success: Decodable {
        let access_token: Text?
        let token_type: Text?
        let expires_in: Seconds?
        let refresh_token: Text?
    }

    /// A text, or something else, which makes that field useless and not the others: by the time it is read here, the refresh token
    /// that was sent may be good for nothing any more.
    private struct Text: Decodable {
        let value: String?

        init(from decoder: any Decoder) throws {
            do {
                value = try decoder.singleValueContainer().decode(String.self)
            } catch is DecodingError {
                value = nil
            }
        }
    }

    /// What is wrong with the access token of an answer.
    private struct Flaw: Error {
        let sentence: String
    }

    private struct Failure: Decodable {
        let error: String
    }

    /// `expires_in` is a number (RFC 6749 appendix A.14); some endpoints write it as a text, or with a fraction. What is none, or
    /// negative, is as if it were not there: no reason to do without the tokens.
    private struct Seconds: Decodable {
        let value: Int64?

        init(from decoder: any Decoder) throws {
            let number: Double?
            do {
                number = try decoder.singleValueContainer().decode(Double.self)
            } catch is DecodingError {
                number = try Text(from: decoder).value.flatMap { Double($0) }
            }
            // Ten years are as good as for ever.
            value = number.flatMap { $0 >= 0 ? Int64(min($0, 315_360_000)) : nil }
        }
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
            let code = decoded(Failure.self, bytes)?.error ?? ""
            let known = errorCodes.contains(code) ? code : "HTTP status \(status)"
            return .failure(.refused("the token endpoint at \(host) refused to renew the token: \(known)"))
        default:
            return .failure(.origin("HTTP status \(status) from the token endpoint at \(host)"))
        }
    }

    private static func grant(
        _ bytes: UnsafeRawBufferPointer, host: String, longestToken: Int
    ) -> Result<TokenGrant, TokenFailure> {
        let answer = "the answer of the token endpoint at \(host)"
        guard let success = decoded(Success.self, bytes) else {
            return .failure(.origin("\(answer) is no JSON object"))
        }
        let refresh = success.refresh_token?.value.flatMap { refreshToken($0, longestToken) }
        switch accessToken(success, longestToken) {
        case .failure(let flaw):
            let sentence = "\(answer) \(flaw.sentence)"
            return .failure(refresh.map { .unusable(sentence, refreshToken: $0) } ?? .origin(sentence))
        case .success(let access):
            guard success.refresh_token == nil || refresh != nil else {
                return .failure(
                    .origin(
                        "\(answer) has a refresh_token that is not 1 to \(longestToken) printable ASCII characters "
                            + "(RFC 6749 appendix A.17)"))
            }
            return .success(TokenGrant(accessToken: access, lifetime: success.expires_in?.value, refreshToken: refresh))
        }
    }

    private static func accessToken(_ success: Success, _ longest: Int) -> Result<Secret, Flaw> {
        guard let type = success.token_type?.value, let text = success.access_token?.value else {
            return .failure(Flaw(sentence: "is no JSON object with the texts access_token and token_type"))
        }
        guard type.lowercased() == "bearer" else {
            return .failure(Flaw(sentence: "has a token_type other than Bearer"))
        }
        guard let access = bearerToken(text, longest) else {
            return .failure(
                Flaw(
                    sentence: "has an access_token that is not 1 to \(longest) characters of RFC 6750 section 2.1"))
        }
        return .success(access)
    }

    /// Nil for what is no such JSON. What exactly is wrong with it stays unsaid: the decoder might show what it found.
    private static func decoded<Value: Decodable>(_ type: Value.Type, _ bytes: UnsafeRawBufferPointer) -> Value? {
        guard let start = bytes.baseAddress else { return nil }
        let data = Data(
            bytesNoCopy: UnsafeMutableRawPointer(mutating: start), count: bytes.count, deallocator: .none)
        do {
            return try JSONDecoder().decode(type, from: data)
        } catch {
            return nil
        }
    }

    /// 1*VSCHAR (RFC 6749 appendix A.17): it is only ever sent form-encoded.
    private static func refreshToken(_ text: String, _ longest: Int) -> Secret? {
        let bytes = text.utf8
        guard 1...max(1, longest) ~= bytes.count, bytes.allSatisfy({ 0x20...0x7E ~= $0 }) else { return nil }
        return Secret(bytes)
    }

    /// `b64token` of RFC 6750 section 2.1.
    private static func bearerToken(_ text: String, _ longest: Int) -> Secret? {
        let bytes = text.utf8
        guard 1...max(1, longest) ~= bytes.count, bytes.first != UInt8(ascii: "="),
            bytes.drop(while: { Characters.token.contains($0) && $0 != UInt8(ascii: "=") })
                .allSatisfy({ $0 == UInt8(ascii: "=") })
        else { return nil }
        return Secret(bytes)
    }
}

import COpenSSL
import LinuxSupport

/// The keys that sign URLs of users: HMAC-SHA-256 over path and expiry.
///
/// A URL is `PATH?expires=SECONDS&signature=HEX`. The signature covers `PATH?expires=SECONDS`, with the path as it is
/// in the request, so no decoding can give a signed path another meaning. Further parameters are not signed.
struct SigningKeys: Sendable, Equatable {
    private let keys: [Secret]

    /// Several keys are valid at the same time while they are exchanged.
    static let most = 4
    /// Bytes of a key.
    static let shortest = 32

    /// Why a file contains no valid keys. The description follows the file's name.
    struct Failure: Error, Equatable, CustomStringConvertible {
        let description: String
    }

    /// Reads one key a line, each used as it is written.
    init(_ text: [UInt8]) throws(Failure) {
        let lines = text.split { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }
        guard (1...Self.most).contains(lines.count) else {
            throw Failure(description: "has \(lines.count) keys; write 1 to \(Self.most), one a line")
        }
        guard lines.allSatisfy({ $0.count >= Self.shortest }) else {
            throw Failure(
                description: "has a key of less than \(Self.shortest) characters; `openssl rand -hex 32` makes one")
        }
        keys = lines.map { Secret($0) }
    }

    /// Checks a signed URL.
    /// - Parameter now: seconds since 1970.
    /// - Returns: the seconds until it expires; nil if it is unsigned, wrongly signed or expired.
    func secondsLeft(path: Substring, query: ImageQuery, now: Int64) -> Int64? {
        guard let expires = query.expires, let signature = query.signature.flatMap(Self.bytes),
            let end = Self.seconds(expires)
        else { return nil }
        let message = Array("\(path)?expires=\(expires)".utf8)
        // All keys are tried, so that the time does not depend on which one matches.
        let matches = keys.map { Self.isEqual(Self.code(message, $0), signature) }
        guard matches.contains(true), end > now else { return nil }
        return end - now
    }

    /// HMAC-SHA-256. Empty if OpenSSL fails, which never equals a signature.
    static func code(_ message: [UInt8], _ key: Secret) -> [UInt8] {
        var code = [UInt8](repeating: 0, count: 32)
        var length = 0
        let isDone = key.withBytes { key in
            EVP_Q_mac(
                nil, "HMAC", nil, "SHA256", nil, key.baseAddress, key.count, message, message.count, &code, 32, &length)
                != nil
        }
        return isDone && length == 32 ? code : []
    }

    /// Compares in a time that does not depend on the contents.
    private static func isEqual(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        one.count == 32 && other.count == 32 && CRYPTO_memcmp(one, other, 32) == 0
    }

    /// The 32 bytes of a signature.
    private static func bytes(_ text: String) -> [UInt8]? {
        guard text.utf8.count == 64 else { return nil }
        let digits = text.utf8.compactMap(Hex.value)
        guard digits.count == 64 else { return nil }
        return stride(from: 0, to: 64, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    /// A time that has one spelling only: digits without leading zeros.
    private static func seconds(_ text: String) -> Int64? {
        guard (1...12).contains(text.utf8.count), let seconds = Int64(text), "\(seconds)" == text, seconds > 0 else {
            return nil
        }
        return seconds
    }
}

import COpenSSL
import Glibc
import LinuxSupport
import ThumbnailCache

/// What is sent to a token endpoint: made in memory that is wiped, never in a Swift string, whose copies nobody could
/// wipe.
enum TokenForm {
    /// RFC 6749 section 6. A client without a secret names itself here (section 3.2.1), one with it in its credentials.
    static func body(of request: TokenRequest) -> Secret {
        let endpoint = request.endpoint
        return made(capacity: 64 + 3 * (request.refreshToken.count + endpoint.clientID.utf8.count)) { bytes in
            bytes += Array("grant_type=refresh_token&refresh_token=".utf8)
            request.refreshToken.withBytes { bytes.appendEncoded($0) }
            if endpoint.clientSecret == nil {
                bytes += Array("&client_id=".utf8)
                bytes.appendEncoded(endpoint.clientID.utf8)
            }
        }
    }

    /// RFC 6749 section 2.3.1: id and secret, each form-encoded, as name and password of RFC 7617. Nil for a client
    /// without a secret.
    static func basicCredentials(of endpoint: TokenEndpoint) -> Secret? {
        guard let secret = endpoint.clientSecret else { return nil }
        let plain = made(capacity: 1 + 3 * (secret.count + endpoint.clientID.utf8.count)) { bytes in
            bytes.appendEncoded(endpoint.clientID.utf8)
            bytes.append(UInt8(ascii: ":"))
            secret.withBytes { bytes.appendEncoded($0) }
        }
        return base64(plain)
    }

    private static func base64(_ plain: Secret) -> Secret {
        let length = (plain.count + 2) / 3 * 4
        // One more for the NUL that OpenSSL puts at the end.
        var bytes = [UInt8](repeating: 0, count: length + 1)
        defer { bytes.wipe() }
        plain.withBytes { plain in
            _ = EVP_EncodeBlock(
                &bytes, plain.baseAddress?.assumingMemoryBound(to: UInt8.self), Int32(clamping: plain.count))
        }
        return Secret(bytes.prefix(length))
    }

    private static func made(capacity: Int, _ fill: (inout [UInt8]) -> Void) -> Secret {
        // With all the room at once nothing is moved, and what is wiped is the only copy.
        var bytes: [UInt8] = []
        bytes.reserveCapacity(capacity)
        defer { bytes.wipe() }
        fill(&bytes)
        return Secret(bytes)
    }
}

import LinuxSupport
import ThumbnailCache

/// What can be told of a token endpoint before it is asked.
enum TokenRules {
    /// Secrets go there, so that it is https (RFC 6749 section 3.2), but for an origin that may be at private
    /// addresses, which are the operator's own network.
    static func validate(_ origin: Origin) throws(OriginError) {
        guard let endpoint = origin.tokenEndpoint else { return }
        let url: WebURL
        do throws(WebURL.Refusal) {
            url = try WebURL(endpoint.url)
        } catch {
            throw OriginError(key: "token.endpoint", reason: error.sentence)
        }
        // RFC 6749 section 3.2: an endpoint's URL has no fragment; WebURL would drop it without a word.
        guard !endpoint.url.utf8.contains(UInt8(ascii: "#")) else {
            throw OriginError(key: "token.endpoint", reason: "the URL of a token endpoint has no fragment")
        }
        guard url.scheme == .https || origin.allowPrivateAddresses else {
            throw OriginError(
                key: "token.endpoint",
                reason: "tokens are sent there, so it must begin with https://; "
                    + "http:// is for an origin with allow-private-addresses = true")
        }
        try checkVisible(isClientText(endpoint.clientID.utf8), "token.client-id")
        try checkVisible(endpoint.clientSecret?.withBytes { isClientText($0) } ?? true, "token.client-secret-file")
    }

    /// RFC 6749 appendix A.1 and A.2.
    private static func isClientText(_ bytes: some Collection<UInt8>) -> Bool {
        bytes.count <= 1_024 && TokenText.isVisible(bytes)
    }

    private static func checkVisible(_ isVisible: Bool, _ key: String) throws(OriginError) {
        guard isVisible else {
            throw OriginError(key: key, reason: "it has 1 to 1024 printable ASCII characters (RFC 6749 appendix A)")
        }
    }
}

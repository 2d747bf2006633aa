import CCurl
import CacheCore
import Origins

extension WebURL {
    /// Parses a URL with libcurl's parser, which is the one that connects. Throws like ``WebURL/init(_:)``.
    /// - Parameter base: of a relative reference, for redirects; nil if the text must be absolute.
    init(asCurl text: String, relativeTo base: WebURL? = nil) throws(CacheFailure) {
        let longest = base == nil ? Self.longest : DownloadTarget.longestRedirect
        try Self.checkBytes(of: text, longest: longest)
        let url = try CurlURL(text, base: base?.string)
        try self.init(
            URLParts(
                scheme: url.get(CURLUPART_SCHEME) ?? "",
                hasUser: url.get(CURLUPART_USER) != nil || url.get(CURLUPART_PASSWORD) != nil,
                host: url.get(CURLUPART_HOST) ?? "", hasZone: url.get(CURLUPART_ZONEID) != nil,
                port: url.get(CURLUPART_PORT), path: url.get(CURLUPART_PATH) ?? "/",
                query: url.get(CURLUPART_QUERY) ?? ""), longest: longest)
    }
}

private final class CurlURL {
    private let handle: OpaquePointer

    init(_ text: String, base: String?) throws(CacheFailure) {
        guard let handle = curl_url() else { throw .invalid("out of memory while parsing a URL") }
        self.handle = handle
        // CURLU_PATH_AS_IS: ``WebURL`` resolves dot segments, after percent-encoded dots have been decoded.
        let flags = UInt32(CURLU_PATH_AS_IS) | UInt32(CURLU_NON_SUPPORT_SCHEME)
        if let base {
            guard curl_url_set(handle, CURLUPART_URL, base, flags) == CURLUE_OK else {
                throw .invalid("invalid base URL")
            }
        }
        let code = curl_url_set(handle, CURLUPART_URL, text, flags)
        guard code != CURLUE_BAD_FILE_URL else { throw WebURL.notOfTheWeb }
        guard code == CURLUE_OK else {
            throw .invalid("not an absolute http or https URL (\(String(cString: curl_url_strerror(code))))")
        }
    }

    deinit { curl_url_cleanup(handle) }

    func get(_ part: CURLUPart) -> String? {
        var text: UnsafeMutablePointer<CChar>?
        guard curl_url_get(handle, part, &text, 0) == CURLUE_OK, let text else { return nil }
        defer { curl_free(text) }
        return String(cString: text)
    }
}

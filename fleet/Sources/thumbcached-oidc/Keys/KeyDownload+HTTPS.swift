import CCurl
import Glibc
import LinuxSupport

/// Downloads a JWK set from the provider's JWKS endpoint with libcurl.
struct HTTPSKeyDownload: KeyDownload {
    let url: String
    /// PEM file of authorities; empty for the system's.
    let authorities: String
    /// Time limit of a download in milliseconds, including the name lookup.
    let limit: Int64

    /// Maximum bytes of a response; a key with its certificates has about 5,000.
    static let longestResponse = 256 << 10

    /// Cancellation has no effect; the download ends at its time limit.
    func download() async throws(KeyFailure) -> [UInt8] {
        // libcurl blocks, so it runs neither on a thread of Swift's tasks nor on an event loop.
        let result: Result<[UInt8], KeyFailure> = await withCheckedContinuation { continuation in
            do throws(SystemError) {
                pthread_detach(try startThread(named: "keys") { continuation.resume(returning: request()) })
            } catch {
                continuation.resume(returning: .failure(KeyFailure("request to the JWKS endpoint failed: \(error)")))
            }
        }
        return try result.get()
    }

    /// The body of a response, filled by libcurl's callback.
    private final class Body {
        var bytes: [UInt8] = []
    }

    private func request() -> Result<[UInt8], KeyFailure> {
        let body = Body()
        let message = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))
        message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        let headers = curl_slist_append(nil, "Accept: application/jwk-set+json, application/json")
        // A new handle has no connections, so none is reused.
        let easy = curl_easy_init()
        defer {
            withExtendedLifetime(body) { curl_easy_cleanup(easy) }
            curl_slist_free_all(headers)
            message.deallocate()
        }
        var options: [CURLcode] = [
            ccurl_easy_set_pointer(easy, CURLOPT_ERRORBUFFER, message),
            ccurl_easy_set_string(easy, CURLOPT_URL, url),
            ccurl_easy_set_string(easy, CURLOPT_PROTOCOLS_STR, "http,https"),
            ccurl_easy_set_long(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1),
            // Keys come only from the configured URL.
            ccurl_easy_set_long(easy, CURLOPT_FOLLOWLOCATION, 0),
            // An empty string also excludes a proxy from the environment.
            ccurl_easy_set_string(easy, CURLOPT_PROXY, ""),
            ccurl_easy_set_long(easy, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2),
            ccurl_easy_set_list(easy, CURLOPT_HTTPHEADER, headers),
            ccurl_easy_set_string(easy, CURLOPT_USERAGENT, "thumbcached-oidc"),
            ccurl_easy_set_long(easy, CURLOPT_TIMEOUT_MS, Int(limit)),
            // No signals, and no waiting for a name lookup after the time limit.
            ccurl_easy_set_long(easy, CURLOPT_NOSIGNAL, 1),
            ccurl_easy_set_long(easy, CURLOPT_QUICK_EXIT, 1),
            ccurl_easy_set_pointer(easy, CURLOPT_WRITEDATA, Unmanaged.passUnretained(body).toOpaque()),
            ccurl_easy_set_data_function(easy, CURLOPT_WRITEFUNCTION) { bytes, size, count, context in
                guard let context else { return 0 }
                let body = Unmanaged<Body>.fromOpaque(context).takeUnretainedValue()
                let piece = UnsafeRawBufferPointer(start: bytes, count: size * count)
                // Any number other than that of the piece ends the request with CURLE_WRITE_ERROR.
                guard piece.count <= HTTPSKeyDownload.longestResponse - body.bytes.count else { return -1 }
                body.bytes += piece
                return piece.count
            },
        ]
        if !authorities.isEmpty {
            options += [
                ccurl_easy_set_string(easy, CURLOPT_CAINFO, authorities),
                // Otherwise libcurl would also trust the system's authorities.
                ccurl_easy_set_pointer(easy, CURLOPT_CAPATH, nil),
            ]
        }
        let code = options.first { $0 != CURLE_OK } ?? curl_easy_perform(easy)
        var status = 0
        _ = ccurl_easy_get_long(easy, CURLINFO_RESPONSE_CODE, &status)
        switch code {
        // The status decides even if the body is too long or incomplete. One below 200 is not final.
        case _ where status > 200:
            return .failure(KeyFailure("the JWKS endpoint answered \(status)"))
        case CURLE_OK:
            return .success(body.bytes)
        case CURLE_WRITE_ERROR:
            return .failure(KeyFailure("the JWKS endpoint's response has more than \(Self.longestResponse) bytes"))
        case CURLE_OPERATION_TIMEDOUT:
            return .failure(KeyFailure("the JWKS endpoint timed out"))
        default:
            let reason = message[0] == 0 ? curl_easy_strerror(code) : UnsafePointer(message)
            return .failure(
                KeyFailure("request to the JWKS endpoint failed: \(reason.map { String(cString: $0) } ?? "")"))
        }
    }
}

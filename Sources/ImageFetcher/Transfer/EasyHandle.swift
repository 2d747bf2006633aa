import CCurl
import CacheCore
import Glibc
import LinuxSupport

/// A libcurl easy handle with its lists and buffers, for one request only.
///
/// libcurl 7.88 keeps a pointer to the last header line that it read, and frees the line before the next request (curl
/// pull request 11103; curl_easy_reset does not help). If the next response on the handle begins with a folded header
/// line, libcurl writes to the freed line, so any origin could corrupt the heap. A new handle costs a microsecond;
/// connections belong to the pool. Used on the fetcher's thread only.
final class EasyHandle {
    let raw: UnsafeMutableRawPointer
    private var headers: UnsafeMutablePointer<curl_slist>?
    private var overrides: UnsafeMutablePointer<curl_slist>?
    private var form: Secret?
    private let message: UnsafeMutablePointer<CChar>

    init() throws(FetchFailure) {
        guard let raw = curl_easy_init() else { throw .origin("libcurl: out of memory") }
        self.raw = raw
        message = .allocate(capacity: Int(CURL_ERROR_SIZE))
        message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        try set(CURLOPT_ERRORBUFFER, pointer: message)
    }

    deinit {
        // First, since libcurl still uses the lists. CURLOPT_QUICK_EXIT keeps it from waiting for a resolver.
        curl_easy_cleanup(raw)
        message.deallocate()
        // One of libcurl's copies of the header lines contains the token.
        var header = headers
        while let line = header {
            if let data = line.pointee.data { wipeMemory(.init(start: data, count: strlen(data))) }
            header = line.pointee.next
        }
        curl_slist_free_all(headers)
        curl_slist_free_all(overrides)
    }

    func set(_ option: CURLoption, _ value: Int) throws(FetchFailure) {
        try check(option, ccurl_easy_set_long(raw, option, value))
    }

    func set(_ option: CURLoption, _ value: String) throws(FetchFailure) {
        try check(option, ccurl_easy_set_string(raw, option, value))
    }

    func set(_ option: CURLoption, pointer: UnsafeMutableRawPointer?) throws(FetchFailure) {
        try check(option, ccurl_easy_set_pointer(raw, option, pointer))
    }

    func set(_ option: CURLoption, _ function: @escaping curl_write_callback) throws(FetchFailure) {
        try check(option, ccurl_easy_set_data_function(raw, option, function))
    }

    /// Sets additional header lines, and Authorization with a token (RFC 6750 section 2.1) or credentials of another
    /// scheme. These never become a Swift string, whose copies could not be wiped.
    func setHeaders(_ lines: [String], token: Secret?, scheme: String = "Bearer") throws(FetchFailure) {
        for line in lines { headers = try appended(line, to: headers) }
        if let token {
            let start = "Authorization: \(scheme) ".utf8
            let line = Secret(capacity: start.count + token.count + 1) { line in
                line += start
                token.withBytes { line += $0 }
                line.append(0)
            }
            guard
                let list = line.withBytes({
                    curl_slist_append(headers, $0.baseAddress?.assumingMemoryBound(to: CChar.self))
                })
            else { throw .origin("libcurl: out of memory") }
            headers = list
        }
        try check(CURLOPT_HTTPHEADER, ccurl_easy_set_list(raw, CURLOPT_HTTPHEADER, headers))
    }

    /// Sets the name and password of the server's account. libcurl copies them; the password becomes no Swift string.
    func setCredentials(name: String, password: Secret) throws(FetchFailure) {
        try set(CURLOPT_USERNAME, name)
        let text = Secret(capacity: password.count + 1) { text in
            password.withBytes { text += $0 }
            text.append(0)
        }
        let code = text.withBytes {
            ccurl_easy_set_string(raw, CURLOPT_PASSWORD, $0.baseAddress?.assumingMemoryBound(to: CChar.self))
        }
        try check(CURLOPT_PASSWORD, code)
    }

    /// Makes the request a POST. libcurl does not copy the form, so the handle keeps it.
    func setForm(_ form: Secret) throws(FetchFailure) {
        self.form = form
        try set(CURLOPT_POST, 1)
        try set(CURLOPT_POSTFIELDSIZE, form.count)
        try set(CURLOPT_POSTFIELDS, pointer: UnsafeMutableRawPointer(mutating: form.withBytes { $0.baseAddress }))
    }

    /// Sets addresses that are used instead of the resolver's.
    func setResolverOverrides(_ overrides: [String]) throws(FetchFailure) {
        guard !overrides.isEmpty else { return }
        for override in overrides { self.overrides = try appended(override, to: self.overrides) }
        try check(CURLOPT_RESOLVE, ccurl_easy_set_list(raw, CURLOPT_RESOLVE, self.overrides))
    }

    /// The status of HTTP or the result code of LDAP; 0 without a response.
    var status: Int { number(CURLINFO_RESPONSE_CODE) ?? 0 }

    /// Whether no byte of the request was sent.
    var hasSentNothing: Bool { number(CURLINFO_REQUEST_SIZE) == 0 }

    private func number(_ info: CURLINFO) -> Int? {
        var number = 0
        return ccurl_easy_get_long(raw, info, &number) == CURLE_OK ? number : nil
    }

    /// Whether name resolution failed for lack of a thread or a descriptor, which libcurl does not report.
    func lacksResourcesToResolve(_ code: CURLcode) -> Bool {
        guard code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY else { return false }
        return failureText(code).contains("thread failed to start") || DescriptorShortage.isNow
    }

    /// The first value of a header field of the response; nil if the field is absent.
    func field(_ name: String) -> String? {
        var header: UnsafeMutablePointer<curl_header>?
        guard curl_easy_header(raw, name, 0, UInt32(CURLH_HEADER), -1, &header) == CURLHE_OK,
            let value = header?.pointee.value
        else { return nil }
        return String(cString: value)
    }

    /// Whole seconds from the start of the request to the end of the response.
    var secondsTaken: Int64 {
        var microseconds: curl_off_t = 0
        let code = ccurl_easy_get_offset(raw, CURLINFO_TOTAL_TIME_T, &microseconds)
        return code == CURLE_OK ? Int64(microseconds) / 1_000_000 : 0
    }

    func failureText(_ code: CURLcode) -> String {
        message[0] == 0 ? String(cString: curl_easy_strerror(code)) : String(cString: message)
    }

    private func appended(
        _ line: String, to list: UnsafeMutablePointer<curl_slist>?
    ) throws(FetchFailure) -> UnsafeMutablePointer<curl_slist> {
        guard let list = curl_slist_append(list, line) else { throw .origin("libcurl: out of memory") }
        return list
    }

    func check(_ option: CURLoption, _ code: CURLcode) throws(FetchFailure) {
        guard code == CURLE_OK else {
            throw .origin("libcurl rejected option \(option.rawValue): \(String(cString: curl_easy_strerror(code)))")
        }
    }
}

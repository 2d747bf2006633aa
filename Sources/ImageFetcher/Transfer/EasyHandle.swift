import CCurl
import CacheCore
import Glibc
import LinuxSupport

/// One of libcurl's easy handles and what belongs to it: for one request, and never for a second.
///
/// libcurl 7.88 keeps a pointer to the last header line it read, and frees the line before the next request without
/// clearing the pointer (curl pull request 11103; curl_easy_reset does not help). An answer on a handle that was used
/// before, whose first header line is a folded one, writes to that freed line: any origin could corrupt the daemon's
/// heap. A new handle costs a microsecond; connections are the pool's, and are used again all the same.
///
/// Only the fetcher's thread touches it.
final class EasyHandle {
    let raw: UnsafeMutableRawPointer
    private var headers: UnsafeMutablePointer<curl_slist>?
    private var overrides: UnsafeMutablePointer<curl_slist>?
    /// What a POST sends.
    private var form: Secret?
    /// Where libcurl writes what went wrong.
    private let message: UnsafeMutablePointer<CChar>

    init() throws(TransferFailure) {
        guard let raw = curl_easy_init() else { throw .origin("libcurl: out of memory") }
        self.raw = raw
        message = .allocate(capacity: Int(CURL_ERROR_SIZE))
        message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        try set(CURLOPT_ERRORBUFFER, pointer: message)
    }

    deinit {
        // With its options in force still: CURLOPT_QUICK_EXIT keeps it from waiting for a resolver.
        curl_easy_cleanup(raw)
        message.deallocate()
        // The lists are libcurl's copies of strings, of which one holds the token.
        var header = headers
        while let line = header {
            if let data = line.pointee.data { wipeMemory(.init(start: data, count: strlen(data))) }
            header = line.pointee.next
        }
        curl_slist_free_all(headers)
        curl_slist_free_all(overrides)
    }

    func set(_ option: CURLoption, _ value: Int) throws(TransferFailure) {
        try check(option, ccurl_easy_set_long(raw, option, value))
    }

    func set(_ option: CURLoption, _ value: String) throws(TransferFailure) {
        try check(option, ccurl_easy_set_string(raw, option, value))
    }

    func set(_ option: CURLoption, pointer: UnsafeMutableRawPointer?) throws(TransferFailure) {
        try check(option, ccurl_easy_set_pointer(raw, option, pointer))
    }

    func set(_ option: CURLoption, _ function: @escaping curl_write_callback) throws(TransferFailure) {
        try check(option, ccurl_easy_set_data_function(raw, option, function))
    }

    /// The lines of the request's header that are not libcurl's own, with the token as RFC 6750 section 2.1 has it, or
    /// with credentials of another scheme. The token is never made a Swift string, whose copies nobody could wipe.
    func setHeaders(_ lines: [String], token: Secret?, scheme: String = "Bearer") throws(TransferFailure) {
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

    /// Makes the request a POST. libcurl reads the form where it lies, and the handle keeps it for as long.
    func setForm(_ form: Secret) throws(TransferFailure) {
        self.form = form
        try set(CURLOPT_POST, 1)
        try set(CURLOPT_POSTFIELDSIZE, form.count)
        try set(CURLOPT_POSTFIELDS, pointer: UnsafeMutableRawPointer(mutating: form.withBytes { $0.baseAddress }))
    }

    /// Answers that the resolver need not be asked for.
    func setResolverOverrides(_ answers: [String]) throws(TransferFailure) {
        guard !answers.isEmpty else { return }
        for answer in answers { overrides = try appended(answer, to: overrides) }
        try check(CURLOPT_RESOLVE, ccurl_easy_set_list(raw, CURLOPT_RESOLVE, overrides))
    }

    /// The status of the answer; 0 where none came.
    var status: Int { number(CURLINFO_RESPONSE_CODE) ?? 0 }

    /// Whether not a byte of the request went out.
    var hasSentNothing: Bool { number(CURLINFO_REQUEST_SIZE) == 0 }

    private func number(_ info: CURLINFO) -> Int? {
        var number = 0
        return ccurl_easy_get_long(raw, info, &number) == CURLE_OK ? number : nil
    }

    /// Whether a request that ended with `code` has no address because there was no thread, or no descriptor, to look
    /// it up with. libcurl and the resolver call that a name which does not resolve.
    func isUnresolvedForWantOfRoom(_ code: CURLcode) -> Bool {
        guard code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY else { return false }
        return failureText(code).contains("thread failed to start") || DescriptorShortage.isNow
    }

    /// The value of a field of the answer's header, the first where there are several; nil where it is not there.
    func field(_ name: String) -> String? {
        var header: UnsafeMutablePointer<curl_header>?
        guard curl_easy_header(raw, name, 0, UInt32(CURLH_HEADER), -1, &header) == CURLHE_OK,
            let value = header?.pointee.value
        else { return nil }
        return String(cString: value)
    }

    /// Whole seconds that the last request took, from its start to the end of its answer.
    var secondsTaken: Int64 {
        var microseconds: curl_off_t = 0
        let code = ccurl_easy_get_offset(raw, CURLINFO_TOTAL_TIME_T, &microseconds)
        return code == CURLE_OK ? Int64(microseconds) / 1_000_000 : 0
    }

    /// What libcurl says of a failure.
    func failureText(_ code: CURLcode) -> String {
        message[0] == 0 ? String(cString: curl_easy_strerror(code)) : String(cString: message)
    }

    private func appended(
        _ line: String, to list: UnsafeMutablePointer<curl_slist>?
    ) throws(TransferFailure) -> UnsafeMutablePointer<curl_slist> {
        guard let list = curl_slist_append(list, line) else { throw .origin("libcurl: out of memory") }
        return list
    }

    /// What libcurl answered to an option.
    func check(_ option: CURLoption, _ code: CURLcode) throws(TransferFailure) {
        guard code == CURLE_OK else {
            throw .origin("libcurl refused option \(option.rawValue): \(String(cString: curl_easy_strerror(code)))")
        }
    }
}

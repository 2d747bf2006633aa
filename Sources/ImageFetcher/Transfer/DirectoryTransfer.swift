import CCurl
import CacheCore
import HelperProtocol
import NIOCore
import Origins

/// A download from an LDAP directory: a bind and one search on a connection of its own.
///
/// libcurl (lib/openldap.c) connects itself and gives the socket to libldap, so addresses and certificates are checked
/// as for HTTP. It follows no referrals. Connections are not reused: libcurl 7.88 keeps a pointer to the handle that
/// opened a TLS connection in libldap.
final class DirectoryTransfer: Transfer {
    private let download: Download
    private let rules: OriginRules
    private var entry: DirectoryEntryReader

    /// Whether a target is in a directory. Only the configuration names directories.
    static func isFor(_ target: DownloadTarget) -> Bool {
        !target.isNamedByClient && ["ldap://", "ldaps://"].contains { target.url.hasPrefix($0) }
    }

    init(_ download: Download, _ handle: TransferHandle, _ context: TransferContext) throws(FetchFailure) {
        if let missing = CurlImageFetcher.missingProtocol(of: download.origin) { throw .origin(missing) }
        do throws(OriginError) {
            rules = try context.rulesCache.rules(of: download.origin)
        } catch {
            throw .origin("the URL cannot be requested: \(error)")
        }
        guard let url = rules.parse(download.target.url) else {
            throw .denied("the URL cannot be requested: the origin does not have its scheme, host and port")
        }
        self.download = download
        // The template is valid, so this is its attribute.
        let attribute = url.query.map { String($0.prefix { $0 != "?" }) } ?? ""
        entry = DirectoryEntryReader(
            host: url.host, attribute: attribute, framing: download.framing, limit: context.settings.maximumImageBytes)
        try super.init(handle, to: url, deadline: handle.entry.deadline, context)
    }

    override var isAllowedPrivately: Bool { rules.mayBePrivate(url, from: url) }

    override func setOptions(of easy: EasyHandle) throws(FetchFailure) {
        try easy.set(CURLOPT_FRESH_CONNECT, 1)
        try easy.set(CURLOPT_FORBID_REUSE, 1)
        if let password = origin.bindPassword { try easy.setCredentials(name: origin.bindName, password: password) }
    }

    override func receive(body bytes: UnsafeRawBufferPointer) -> Bool { entry.receive(bytes) }

    /// As in HTTP, 200 once the directory has responded to the search.
    override var seenStatus: Int? { entry.bytes > 0 || Self.definiteResults.contains(easy.status) ? 200 : nil }

    /// noSuchObject, insufficientAccessRights, referral (RFC 4511 appendix A): the next search has the same result.
    private static let definiteResults = [32, 50, 10]

    override func outcome(_ code: CURLcode) -> TransferOutcome? {
        counts[.bytes] += entry.bytes
        let headers = ResponseHeaders(delay: easy.secondsTaken)
        switch entry.verdict(isWhole: code == CURLE_OK) {
        case .image(let bytes): return .download(image(bytes, headers))
        case .missing: return .download(.missing(headers))
        case .unusable(let failure): return .download(.unusable(failure, headers))
        case nil: break
        }
        switch (code, easy.status) {
        case (CURLE_LDAP_SEARCH_FAILED, 32):
            return .download(.unusable(.origin("\(url.host) has no entry with the base name of the URL"), headers))
        case (CURLE_LDAP_SEARCH_FAILED, 50):
            return .download(.unusable(.forbidden("\(url.host) denies the search to this account"), headers))
        case (CURLE_LDAP_SEARCH_FAILED, 10):
            return .download(.unusable(.origin("\(url.host) refers to another server, which is not asked"), headers))
        // Without the text of the directory, which may name the profile.
        case (CURLE_LDAP_SEARCH_FAILED, let result) where result > 0:
            return .download(.failed(.origin("\(url.host): the search failed with LDAP result \(result)")))
        case (CURLE_LOGIN_DENIED, _):
            return .download(.failed(.origin("\(url.host) refuses the LDAP bind with bind.name and its password")))
        default:
            return .download(.failed(failure(code)))
        }
    }
}

extension CurlImageFetcher {
    /// Why an origin's URLs cannot be requested with the libcurl of this machine; nil if they can.
    package static func missingProtocol(of origin: Origin) -> String? {
        let missing = ["ldap", "ldaps"].first { scheme in
            ([origin.url] + origin.then.map(\.url)).contains { $0.lowercased().hasPrefix(scheme + "://") }
                && !ccurl_has_protocol(scheme)
        }
        return missing.map {
            "url: the libcurl of this machine (\(LIBCURL_VERSION)) does not support \($0)://; install one that does"
        }
    }
}

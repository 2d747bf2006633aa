import NIOCore
import ThumbnailCache

extension DownloadTransfer {
    /// What the answer alone does not tell.
    func completed(_ headers: ResponseHeaders) -> ResponseHeaders {
        var headers = headers
        headers.delay = easy.secondsTaken
        headers.redirects = redirectHeaders
        return headers
    }

    func image(_ bytes: ImageBytes, _ headers: ResponseHeaders) -> DownloadOutcome {
        do {
            let shape = try ImageSniffer.sniff(bytes.image, maximumDimension: configuration.maximumDimension)
            let last = url.string
            return .image(
                DownloadedImage(
                    bytes: bytes, shape: shape, headers: headers,
                    redirectedTo: last == download.target.url ? nil : last))
        } catch {
            return .failed(.badImage("from \(url.host): \(error.reason)"))
        }
    }
}

extension DownloadCondition {
    /// The lines of a request's header that say it (RFC 9110 section 13.1).
    var lines: [String] {
        [etag.map { "If-None-Match: \($0)" }, lastModified.map { "If-Modified-Since: \($0)" }].compactMap { $0 }
    }
}

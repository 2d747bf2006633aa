import FetcherProtocol
import LinuxSupport
import NIOCore
import ThumbnailCache

extension FetcherClient {
    /// What a fetcher was asked for, and who is told what came of it.
    enum Expected: Sendable {
        case download(
            uid: UInt32, framing: ReplyFraming, isConditional: Bool, @Sendable (DownloadOutcome) -> Void)
        case token(uid: UInt32, @Sendable (Result<TokenGrant, TokenFailure>) -> Void)

        var uid: UInt32 {
            switch self {
            case .download(let uid, _, _, _), .token(let uid, _): uid
            }
        }

        var isDownload: Bool { if case .download = self { true } else { false } }

        func fail(_ failure: TokenFailure) {
            switch self {
            case .download(_, _, _, let onEnd): onEnd(.failed(CacheFailure(failure)))
            case .token(_, let onEnd): onEnd(.failure(failure))
            }
        }

        /// Tells what the fetcher says came of it, as far as that can be.
        /// - Throws: where it cannot; then that is told as well.
        func end(
            _ report: FetcherReport, _ body: ImageBytes.Builder?, _ settings: FetcherSettings
        ) throws(MessageError) {
            switch (self, report) {
            case (.download(_, let framing, _, let onEnd), .image(_, let headers, let redirectedTo)):
                onEnd(Self.image(body ?? .init(), framing, headers, redirectedTo, settings))
            case (.download(_, _, _, let onEnd), .missing(_, let headers)): onEnd(.missing(headers))
            case (.download(_, _, true, let onEnd), .notModified(_, let headers)): onEnd(.notModified(headers))
            case (.download(_, _, _, let onEnd), .failed(_, let failure)): onEnd(.failed(failure))
            case (.token(_, let onEnd), .token(_, let result)): onEnd(Self.judged(result, settings))
            default:
                fail(.origin("the process that downloads answered something else than it was asked"))
                throw MessageError("answers something else than was asked")
            }
        }

        /// A picture is what is one here, whatever the fetcher took it for.
        private static func image(
            _ body: ImageBytes.Builder, _ framing: ReplyFraming, _ headers: ResponseHeaders, _ redirectedTo: String?,
            _ settings: FetcherSettings
        ) -> DownloadOutcome {
            var body = body
            let bytes = body.finish(framing)
            guard bytes.count <= settings.maximumImageBytes else {
                return .failed(.tooLarge("the image has more than \(settings.maximumImageBytes) bytes"))
            }
            do {
                let shape = try ImageSniffer.sniff(bytes.image, maximumDimension: settings.maximumDimension)
                return .image(DownloadedImage(bytes: bytes, shape: shape, headers: headers, redirectedTo: redirectedTo))
            } catch {
                return .failed(.badImage("from the origin: \(error.reason)"))
            }
        }

        /// Tokens are kept: they are what such may be, also if the fetcher did not look.
        private static func judged(
            _ result: Result<TokenGrant, TokenFailure>, _ settings: FetcherSettings
        ) -> Result<TokenGrant, TokenFailure> {
            func isFit(_ token: Secret?, _ isToken: (UnsafeRawBufferPointer) -> Bool) -> Bool {
                guard let token else { return true }
                return (1...max(1, settings.maximumTokenBytes)).contains(token.count) && token.withBytes(isToken)
            }
            let areFit =
                switch result {
                case .success(let grant):
                    isFit(grant.accessToken, TokenText.isBearer) && isFit(grant.refreshToken, TokenText.isVisible)
                case .failure(.unusable(_, let refreshToken)): isFit(refreshToken, TokenText.isVisible)
                case .failure: true
                }
            return areFit ? result : .failure(.origin("the process that downloads sent what is no token"))
        }
    }
}

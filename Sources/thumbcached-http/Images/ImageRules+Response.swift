import NIOCore
import NIOHTTP1
import Thumbcache

extension ImageRules {
    /// Scripts of an image never run, even if it is opened as a page.
    private static let policy = "\(Response.strictestPolicy); sandbox"
    /// The formats of the daemon. A type is not copied into a header field without this check.
    private static let types: Set<String> = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]

    /// The response to a request for an image, given the daemon's reply.
    func response(to request: ImageRequest, _ outcome: ImageOutcome) -> Response {
        switch outcome {
        case .image(let image):
            guard Self.types.contains(image.status.type), EntityTags.isDigest(image.status.digest) else {
                return failure(.origin, request)
            }
            let cacheControl = request.policy.value(for: image.status)
            if request.tags.contains(image.status.digest) {
                return unchanged(image.status.digest, cacheControl)
            }
            var response = Response(.ok, type: image.status.type, image.bytes)
            response.fields.append(("ETag", EntityTags.tag(image.status.digest)))
            return finished(response, cacheControl)
        case .unchanged(let digest, let status):
            return unchanged(digest, status.map { request.policy.value(for: $0) } ?? CachePolicy.revalidated)
        case .missing:
            return defaultResponse(to: request, cacheControl: CachePolicy.revalidated)
        case .failure(let failure):
            return self.failure(failure, request)
        }
    }

    /// The default image of a request.
    func defaultResponse(to request: ImageRequest, cacheControl: String) -> Response {
        switch request.defaultImage {
        case .notFound: return finished(Response(.notFound, "No image."), "no-store")
        case .url(let url):
            var response = Response(.found)
            response.fields.append(("Location", url))
            return finished(response, cacheControl)
        case .person, .blank, .initials: return finished(drawn(request, .ok), cacheControl)
        }
    }

    private func unchanged(_ digest: String, _ cacheControl: String) -> Response {
        var response = Response(.notModified)
        response.fields.append(("ETag", EntityTags.tag(digest)))
        return finished(response, cacheControl)
    }

    /// Browsers show the body of an error, so the status tells programs what happened, and the page keeps its layout.
    private func failure(_ failure: ImageOutcome.Failure, _ request: ImageRequest) -> Response {
        let (status, sentence): (HTTPResponseStatus, String) =
            switch failure {
            case .busy: (.serviceUnavailable, "Too many requests; retry later.")
            case .unavailable: (.serviceUnavailable, "The image cache is unavailable; retry later.")
            case .timeout: (.gatewayTimeout, "The origin did not respond in time.")
            case .origin: (.badGateway, "The origin failed.")
            }
        var response =
            switch request.defaultImage {
            case .notFound, .url: Response(status, sentence)
            case .person, .blank, .initials: drawn(request, status)
            }
        if status == .serviceUnavailable { response.fields.append(("Retry-After", "2")) }
        return finished(response, "no-store")
    }

    private func drawn(_ request: ImageRequest, _ status: HTTPResponseStatus) -> Response {
        let text =
            switch request.defaultImage {
            case .initials(let letters): request.drawing.initials(letters)
            case .person: request.drawing.person
            case .notFound, .blank, .url: request.drawing.blank
            }
        return Response(status, type: "image/svg+xml", ByteBuffer(string: text))
    }

    private func finished(_ response: Response, _ cacheControl: String) -> Response {
        var response = response
        response.cacheControl = cacheControl
        response.embedding = settings.embedding
        response.fields.append(("Content-Security-Policy", Self.policy))
        return response
    }
}

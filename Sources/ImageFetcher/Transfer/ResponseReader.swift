import CacheCore
import NIOCore
import Origins

/// Reads one response of an origin from libcurl, and rejects it as early as possible: by its status, by the announced
/// length, or by the bytes received (F34, F35).
///
/// A value without effects. Functions that accept input return whether to continue; see ``verdict(isWhole:)``.
struct ResponseReader {
    struct Limits {
        /// Bytes of all header lines, including interim responses and trailers.
        var header = 64 << 10
        /// Bytes of one field value; a longer one is dropped.
        var value = 1 << 10
        /// Values of one field.
        var values = 16
        /// Bytes that are read from an unneeded body so that the connection can be reused.
        var discarded = 64 << 10
        /// Bytes of an image.
        var image: Int
    }

    enum Verdict {
        case image(ImageBytes, ResponseHeaders)
        case missing(ResponseHeaders)
        /// A definite response without a usable image: see ``DownloadOutcome/unusable(_:_:)``.
        case unusable(FetchFailure, ResponseHeaders)
        case notModified(ResponseHeaders)
        case redirect(String)
        case failed(FetchFailure)
    }

    private let host: String
    private let isConditional: Bool
    private let framing: ReplyFraming
    private let limits: Limits
    private var stage = Stage.beforeStatus
    private var status = 0
    private var fields: [String: [String]] = [:]
    /// The last header line; the next line may continue it.
    private var lastField: [UInt8] = []
    private var isFolded = false
    private var location: String?
    private var hasCoding = false
    private var isChunked = false
    private var announced: Int?
    private var headerBytes = 0
    /// The status of the final response, once its header is complete.
    var finalStatus: Int? { stage == .inBody ? status : nil }
    /// The status of the response, as soon as it is known.
    var seenStatus: Int? { stage == .beforeStatus ? nil : status }
    func field(_ name: String) -> String? { fields[name].map { $0.joined(separator: ", ") } }
    /// Bytes of the body received so far.
    private(set) var bodyBytes = 0
    private var image: ImageBytes.Builder?
    private var refusal: (failure: FetchFailure, isDefinite: Bool)?
    private var hasSeenEnough = false

    private enum Stage {
        case beforeStatus
        case inFields
        /// The header of the final response is complete. Trailers are ignored.
        case inBody
    }

    init(host: String, isConditional: Bool = false, framing: ReplyFraming, limits: Limits) {
        (self.host, self.isConditional, self.framing, self.limits) = (host, isConditional, framing, limits)
    }

    /// The header fields that matter to a cache, as far as they have been received.
    var headers: ResponseHeaders { ResponseHeaders(fields) }

    /// Accepts one header line including its line break.
    mutating func header(_ line: UnsafeRawBufferPointer) -> Bool {
        headerBytes += line.count
        guard headerBytes <= limits.header else {
            return reject(.origin("the response header from \(host) exceeds \(limits.header) bytes"))
        }
        switch stage {
        case .inBody:
            return true
        case .beforeStatus:
            return statusLine(line.trimmed)
        // As in libcurl, a line of blanks does not end the header.
        case .inFields where line.first == 0x0D || line.first == 0x0A:
            return finishField() && finishHeader()
        case .inFields where line.first == 0x20 || line.first == 0x09:
            return continueField(with: line.trimmed)
        case .inFields:
            guard finishField() else { return false }
            lastField.append(contentsOf: line.trimmed)
            return true
        }
    }

    /// A line that begins with a blank continues the field before it (RFC 9112 section 5.2).
    private mutating func continueField(with text: Slice<UnsafeRawBufferPointer>) -> Bool {
        guard !lastField.isEmpty else {
            return reject(.origin("the response header from \(host) begins with a folded line"))
        }
        isFolded = true
        lastField.append(0x20)
        lastField.append(contentsOf: text)
        return true
    }

    private mutating func finishField() -> Bool {
        guard !lastField.isEmpty else { return true }
        defer {
            lastField.removeAll(keepingCapacity: true)
            isFolded = false
        }
        return field(lastField[...])
    }

    mutating func body(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bodyBytes += bytes.count
        guard image != nil else {
            hasSeenEnough = bodyBytes > limits.discarded
            return !hasSeenEnough
        }
        guard bodyBytes <= limits.image else { return reject(tooLarge, isDefinite: true) }
        if !isChunked, let announced, bodyBytes > announced { return reject(overlong) }
        image?.buffer.writeBytes(bytes)
        return true
    }

    /// Counts bytes of the body before libcurl truncates it to the announced length. The rest of a response that is too
    /// long cannot be told from the next response.
    mutating func rawBody(_ count: Int) {
        guard !isChunked, let announced, bodyBytes + count > announced else { return }
        _ = reject(overlong)
    }

    /// Returns the meaning of the response. Call it once, because it moves the image out.
    /// - Parameter isWhole: false if libcurl ended the request with an error; then nil, unless this reader rejected it.
    mutating func verdict(isWhole: Bool) -> Verdict? {
        if let refusal { return refusal.isDefinite ? .unusable(refusal.failure, headers) : .failed(refusal.failure) }
        guard isWhole || hasSeenEnough else { return nil }
        switch status {
        case 200, 201, 203:
            guard let count = image?.count else {
                return .failed(.origin("the response from \(host) ended within its header"))
            }
            if !isChunked, let announced, announced != count {
                return .failed(
                    .origin("\(host) announced \(announced) bytes and sent \(count)"))
            }
            // Framed in place; a second reference would cause a copy.
            guard let framed = image?.finish(framing) else { return nil }
            return .image(framed, headers)
        case 204, 404, 410:
            return .missing(headers)
        case 304 where isConditional:
            return .notModified(headers)
        case 304:
            return .failed(.origin("HTTP status 304 from \(host) to a request without a condition"))
        case 401:
            return .failed(.unauthorized("HTTP status 401 from \(host)"))
        case 403, 451:
            return .unusable(.forbidden("HTTP status \(status) from \(host)"), headers)
        case 301, 302, 303, 307, 308:
            guard let location else {
                return .unusable(.origin("HTTP status \(status) from \(host) without a Location"), headers)
            }
            return .redirect(location)
        case 407, 408, 421, 425, 429, 500...:
            // Temporary, or about the connection or the proxy.
            return .failed(.origin("HTTP status \(status) from \(host)"))
        default:
            return .unusable(.origin("HTTP status \(status) from \(host)"), headers)
        }
    }

    /// Whether the body is the image: also 201 (generated by this request) and 203 (changed by an intermediary).
    private var isImage: Bool { [200, 201, 203].contains(status) }

    private var tooLarge: FetchFailure { .tooLarge("the image from \(host) exceeds \(limits.image) bytes") }

    private var overlong: FetchFailure { .origin("\(host) sent more bytes than it announced") }

    /// - Parameter isDefinite: whether the next request would get the same response.
    private mutating func reject(_ failure: FetchFailure, isDefinite: Bool = false) -> Bool {
        refusal = refusal ?? (failure, isDefinite)
        return false
    }

    private mutating func statusLine(_ line: Slice<UnsafeRawBufferPointer>) -> Bool {
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 2)
        guard line.starts(with: "HTTP/".utf8), words.count >= 2,
            let status = Int(String(decoding: words[1], as: UTF8.self)), (100...999).contains(status)
        else {
            return reject(.origin("the response from \(host) does not begin with an HTTP status line"))
        }
        self.status = status
        fields = [:]
        lastField = []
        location = nil
        hasCoding = false
        isChunked = false
        announced = nil
        stage = .inFields
        return true
    }

    private mutating func field(_ line: ArraySlice<UInt8>) -> Bool {
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return true }
        let name = line[..<colon]
        guard name.count <= Self.maximumNameLength else { return true }
        let value = line[line.index(after: colon)...].trimmed
        let known = name.lowercased
        switch known {
        case "content-length" where isFolded, "transfer-encoding" where isFolded:
            // libcurl uses only the first line, so it would read another body than this reader.
            return reject(.origin("\(host) sent a folded Content-Length or Transfer-Encoding"))
        case "content-length":
            guard let length = Int(String(decoding: value, as: UTF8.self)), length >= 0, announced ?? length == length
            else { return reject(.origin("\(host) sent an invalid Content-Length, or two that differ")) }
            announced = length
        case "transfer-encoding":
            guard value.lowercased == "chunked" else {
                return reject(.origin("\(host) sent a transfer coding other than chunked"))
            }
            isChunked = true
        case "content-encoding":
            let tokens = value.lowercased.split { !$0.isLetter && !$0.isNumber && $0 != "-" && $0 != "/" }
            hasCoding = hasCoding || tokens.contains { Self.codings.contains(String($0)) }
        case "location":
            if !value.isEmpty { location = location ?? Self.encodedReference(value) }
        // The fields that matter to a cache.
        case "age", "cache-control", "content-type", "date", "etag", "expires", "last-modified", "pragma",
            "retry-after", "vary":
            store(value, of: known)
        default:
            break
        }
        return true
    }

    /// Content codings that compress or encrypt (IANA registry), which are rejected. Origins send other tokens, such as
    /// `none` or `UTF-8`, with plain images.
    private static let codings: Set = [
        "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip",
        "zstd",
    ]

    /// Location with blanks and non-ASCII bytes percent-encoded. Decoding it as UTF-8 would change the path.
    private static func encodedReference(_ value: ArraySlice<UInt8>) -> String {
        var encoded: [UInt8] = []
        encoded.reserveCapacity(value.count)
        for byte in value {
            if byte == 0x20 || byte >= 0x80 {
                encoded.appendEncoded(CollectionOfOne(byte))
            } else {
                encoded.append(byte)
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    private static let maximumNameLength = "transfer-encoding".utf8.count

    /// The most restrictive values, used for fields that cannot be read.
    private static let worst = ["cache-control": "no-store", "expires": "0", "vary": "*"]

    /// Stores a field value. One that is too long, not visible ASCII, or one too many is dropped, because it could not
    /// be sent back unchanged; a restrictive field then counts as most restrictive.
    private mutating func store(_ value: ArraySlice<UInt8>, of name: String) {
        let isOneTooMany = fields[name, default: []].count >= limits.values
        if isOneTooMany { fields[name]?.removeLast() }
        let isReadable = value.count <= limits.value && value.allSatisfy { $0 >= 0x20 && $0 < 0x7F || $0 == 0x09 }
        let kept = isReadable && !isOneTooMany ? String(decoding: value, as: UTF8.self) : Self.worst[name]
        if let kept { fields[name, default: []].append(kept) }
    }

    private mutating func finishHeader() -> Bool {
        guard status >= 200 else {
            // An interim response; the final one follows.
            stage = .beforeStatus
            return true
        }
        stage = .inBody
        guard isImage else { return true }
        // Checked after the whole header, because later fields determine how long the response is remembered.
        if hasCoding {
            return reject(.origin("\(host) sent an unsupported content coding"), isDefinite: true)
        }
        if !isChunked, let announced, announced > limits.image { return reject(tooLarge, isDefinite: true) }
        image = ImageBytes.Builder(capacity: isChunked ? 0 : announced ?? 0)
        return true
    }
}

extension BidirectionalCollection where Element == UInt8, SubSequence: BidirectionalCollection {
    /// Without leading and trailing blanks and line breaks.
    fileprivate var trimmed: SubSequence {
        let isBlank: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D || $0 == 0x0A }
        guard let last = lastIndex(where: { !isBlank($0) }) else { return self[startIndex..<startIndex] }
        return self[...last].drop(while: isBlank)
    }

    fileprivate var lowercased: String { String(decoding: map(\.asciiLowercased), as: UTF8.self) }
}

import CacheCore
import NIOCore
import Origins

/// Takes in one answer of an origin as libcurl hands it over, line by line and piece by piece, and judges it as early
/// as can be told: by its status, by a length announced, by the bytes that have come (F34, F35).
///
/// A value without effects. Both functions that take something in say whether to go on; once they have said no,
/// ``verdict`` knows why.
struct ResponseReader {
    struct Limits {
        /// Bytes of header lines, of interim answers and trailers too.
        var header = 64 << 10
        /// Bytes of one field value that is kept; a longer one is dropped.
        var value = 1 << 10
        /// Values that are kept of one field.
        var values = 16
        /// Bytes read of a body that nobody wants, so that the connection can be used again.
        var discarded = 64 << 10
        /// Bytes of an image.
        var image: Int
    }

    /// What an answer comes to, if it comes to its end.
    enum Verdict {
        case image(ImageBytes, ResponseHeaders)
        case missing(ResponseHeaders)
        /// A definite response without a usable image: see ``DownloadOutcome/unusable(_:_:)``.
        case unusable(CacheFailure, ResponseHeaders)
        case notModified(ResponseHeaders)
        case redirect(String)
        case failed(CacheFailure)
    }

    private let host: String
    private let isConditional: Bool
    private let framing: ReplyFraming
    private let limits: Limits
    private var stage = Stage.beforeStatus
    private var status = 0
    private var fields: [String: [String]] = [:]
    /// The field whose line came last: the next may go on with it.
    private var lastField: [UInt8] = []
    private var isFolded = false
    private var location: String?
    private var hasCoding = false
    private var isChunked = false
    private var announced: Int?
    private var headerBytes = 0
    /// The status of the final answer, once its header is complete.
    var finalStatus: Int? { stage == .inBody ? status : nil }
    /// The status of the answer that is being read, as soon as it is known.
    var seenStatus: Int? { stage == .beforeStatus ? nil : status }
    /// Its fields of that name, as one value.
    func field(_ name: String) -> String? { fields[name].map { $0.joined(separator: ", ") } }
    /// Bytes of body so far.
    private(set) var bodyBytes = 0
    private var image: ImageBytes.Builder?
    private var refusal: (failure: CacheFailure, isDefinite: Bool)?
    private var hasSeenEnough = false

    private enum Stage {
        case beforeStatus
        case inFields
        /// The final answer's header is complete: what looks like a field is a trailer, which says nothing.
        case inBody
    }

    /// - Parameters:
    ///   - host: named in sentences.
    ///   - isConditional: whether the request said what is held already.
    init(host: String, isConditional: Bool = false, framing: ReplyFraming, limits: Limits) {
        self.host = host
        self.isConditional = isConditional
        self.framing = framing
        self.limits = limits
    }

    /// The fields of the answer that matter to a cache, as far as they have come.
    var headers: ResponseHeaders { ResponseHeaders(fields) }

    /// One line of header, with its line end.
    mutating func header(_ line: UnsafeRawBufferPointer) -> Bool {
        headerBytes += line.count
        guard headerBytes <= limits.header else {
            return refuse(.origin("the header of the answer from \(host) exceeds \(limits.header) bytes"))
        }
        switch stage {
        case .inBody:
            return true
        case .beforeStatus:
            return statusLine(line.trimmed)
        // As libcurl has it: a line of blanks ends nothing.
        case .inFields where line.first == 0x0D || line.first == 0x0A:
            return takeLastField() && headerIsComplete()
        case .inFields where line.first == 0x20 || line.first == 0x09:
            return goOn(with: line.trimmed)
        case .inFields:
            guard takeLastField() else { return false }
            lastField.append(contentsOf: line.trimmed)
            return true
        }
    }

    /// A line that begins with a blank goes on with the field before it (RFC 9112 section 5.2).
    private mutating func goOn(with text: Slice<UnsafeRawBufferPointer>) -> Bool {
        guard !lastField.isEmpty else {
            return refuse(.origin("the header of the answer from \(host) begins with a folded line"))
        }
        isFolded = true
        lastField.append(0x20)
        lastField.append(contentsOf: text)
        return true
    }

    private mutating func takeLastField() -> Bool {
        guard !lastField.isEmpty else { return true }
        defer {
            lastField.removeAll(keepingCapacity: true)
            isFolded = false
        }
        return field(lastField[...])
    }

    /// Some bytes of the body.
    mutating func body(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bodyBytes += bytes.count
        guard image != nil else {
            hasSeenEnough = bodyBytes > limits.discarded
            return !hasSeenEnough
        }
        guard bodyBytes <= limits.image else { return refuse(tooLarge, isDefinite: true) }
        if !isChunked, let announced, bodyBytes > announced { return refuse(overlong) }
        image?.buffer.writeBytes(bytes)
        return true
    }

    /// `count` bytes of body came, before libcurl cut off what exceeds the length announced. Nobody can tell the parts
    /// of an answer that is longer than it says from the next answer's.
    mutating func bodyAsItCame(_ count: Int) {
        guard !isChunked, let announced, bodyBytes + count > announced else { return }
        _ = refuse(overlong)
    }

    /// What the answer comes to; asked once, since the image is given out with it. `isWhole` is false when libcurl
    /// ended it with an error; then nil unless it was ended from here.
    mutating func verdict(isWhole: Bool) -> Verdict? {
        if let refusal { return refusal.isDefinite ? .unusable(refusal.failure, headers) : .failed(refusal.failure) }
        guard isWhole || hasSeenEnough else { return nil }
        switch status {
        case 200, 201, 203:
            guard let count = image?.count else {
                return .failed(.origin("the answer from \(host) ended within its header"))
            }
            if !isChunked, let announced, announced != count {
                return .failed(
                    .origin("\(host) announced \(announced) bytes and sent \(count): the image is not whole"))
            }
            // Framed where it lies: handed on first, it would have two owners and be copied.
            guard let framed = image?.finish(framing) else { return nil }
            return .image(framed, headers)
        case 204, 404, 410:
            return .missing(headers)
        case 304 where isConditional:
            return .notModified(headers)
        case 304:
            return .failed(.origin("HTTP status 304 from \(host), to a request without a condition"))
        case 401:
            return .failed(.unauthorized("HTTP status 401 from \(host)"))
        case 403, 451:
            return .unusable(.forbidden("HTTP status \(status) from \(host)"), headers)
        case 301, 302, 303, 307, 308:
            guard let location else {
                return .unusable(.origin("HTTP status \(status) from \(host), without a Location"), headers)
            }
            return .redirect(location)
        case 407, 408, 421, 425, 429, 500...:
            // About the moment, the connection or the proxy.
            return .failed(.origin("HTTP status \(status) from \(host)"))
        default:
            return .unusable(.origin("HTTP status \(status) from \(host)"), headers)
        }
    }

    /// Whether the body is the image: with 201, of an image that was generated for this request; with 203, as an
    /// intermediary has changed it (RFC 9110 section 15.3.4).
    private var isImage: Bool { [200, 201, 203].contains(status) }

    private var tooLarge: CacheFailure { .tooLarge("the image from \(host) exceeds \(limits.image) bytes") }

    private var overlong: CacheFailure { .origin("\(host) sent more bytes than the length it announced") }

    /// - Parameter isDefinite: whether the response is complete enough to be remembered.
    private mutating func refuse(_ failure: CacheFailure, isDefinite: Bool = false) -> Bool {
        refusal = refusal ?? (failure, isDefinite)
        return false
    }

    private mutating func statusLine(_ line: Slice<UnsafeRawBufferPointer>) -> Bool {
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 2)
        guard line.starts(with: "HTTP/".utf8), words.count >= 2,
            let status = Int(String(decoding: words[1], as: UTF8.self)), (100...999).contains(status)
        else {
            return refuse(.origin("the answer from \(host) does not begin with an HTTP status"))
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
        // Most fields mean nothing here, and a name that is longer than all that do need not be read.
        let name = line[..<colon]
        guard name.count <= Self.longestName else { return true }
        let value = line[line.index(after: colon)...].trimmed
        let known = name.lowercased
        switch known {
        case "content-length" where isFolded, "transfer-encoding" where isFolded:
            // libcurl takes the first line for all of it: it and this would read two bodies.
            return refuse(.origin("\(host) says in a folded line how its answer is framed"))
        case "content-length":
            guard let length = Int(String(decoding: value, as: UTF8.self)), length >= 0, announced ?? length == length
            else { return refuse(.origin("\(host) announced a length that is no number, or two that differ")) }
            announced = length
        case "transfer-encoding":
            guard value.lowercased == "chunked" else {
                return refuse(.origin("\(host) sent a transfer coding that was not asked for"))
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
            keep(value, of: known)
        default:
            break
        }
        return true
    }

    /// The codings that compress or encrypt (IANA's registry). Nothing is decoded here, so that nothing can expand; other
    /// tokens, such as `none` or `UTF-8`, stand before plain images.
    private static let codings: Set = [
        "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip",
        "zstd",
    ]

    /// The value of Location with blanks and non-ASCII bytes percent-encoded, byte by byte: decoded as UTF-8, other
    /// bytes would become another path.
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

    private static let longestName = "transfer-encoding".utf8.count

    /// What is believed of a field that cannot be read: the worst that it could say.
    private static let worst = ["cache-control": "no-store", "expires": "0", "vary": "*"]

    /// A value that is long, holds anything but visible ASCII and blanks, or is one too many is dropped: it could not
    /// be sent back as it came. Where it might have forbidden something, it is taken to have done so.
    private mutating func keep(_ value: ArraySlice<UInt8>, of name: String) {
        let isOneTooMany = fields[name, default: []].count >= limits.values
        if isOneTooMany { fields[name]?.removeLast() }
        let isReadable = value.count <= limits.value && value.allSatisfy { $0 >= 0x20 && $0 < 0x7F || $0 == 0x09 }
        let kept = isReadable && !isOneTooMany ? String(decoding: value, as: UTF8.self) : Self.worst[name]
        if let kept { fields[name, default: []].append(kept) }
    }

    private mutating func headerIsComplete() -> Bool {
        guard status >= 200 else {
            // An interim answer: the real one follows.
            stage = .beforeStatus
            return true
        }
        stage = .inBody
        guard isImage else { return true }
        // Judged here and not where the field stands: what follows may say how long the response is believed.
        if hasCoding {
            return refuse(.origin("\(host) sent a content coding that was not asked for"), isDefinite: true)
        }
        if !isChunked, let announced, announced > limits.image { return refuse(tooLarge, isDefinite: true) }
        image = ImageBytes.Builder(capacity: isChunked ? 0 : announced ?? 0)
        return true
    }
}

extension BidirectionalCollection where Element == UInt8, SubSequence: BidirectionalCollection {
    /// Without blanks and line ends around it.
    fileprivate var trimmed: SubSequence {
        let isBlank: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D || $0 == 0x0A }
        guard let last = lastIndex(where: { !isBlank($0) }) else { return self[startIndex..<startIndex] }
        return self[...last].drop(while: isBlank)
    }

    /// As text, ASCII letters in lower case.
    fileprivate var lowercased: String { String(decoding: map(\.asciiLowercased), as: UTF8.self) }
}

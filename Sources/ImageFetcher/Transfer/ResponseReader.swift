import NIOCore
import Origins
import ThumbnailCache

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
        case notModified(ResponseHeaders)
        case redirect(String)
        case failed(DownloadFailure)
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
    private var refusal: DownloadFailure?
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
        guard bodyBytes <= limits.image else { return refuse(tooLarge) }
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
        if let refusal { return .failed(refusal) }
        guard isWhole || hasSeenEnough else { return nil }
        switch status {
        case 200, 203:
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
        case 404, 410:
            return .missing(headers)
        case 304 where isConditional:
            return .notModified(headers)
        case 304:
            return .failed(.origin("HTTP status 304 from \(host), to a request without a condition"))
        case 401:
            return .failed(.unauthorized("HTTP status 401 from \(host)"))
        case 403, 451:
            return .failed(.forbidden("HTTP status \(status) from \(host)"))
        case 301, 302, 303, 307, 308:
            guard let location else {
                return .failed(.origin("HTTP status \(status) from \(host), without saying where to"))
            }
            return .redirect(location)
        default:
            return .failed(.origin("HTTP status \(status) from \(host)"))
        }
    }

    /// Whether the body is the image: with 203, as somebody on the way has changed it (RFC 9110 section 15.3.4).
    private var isImage: Bool { status == 200 || status == 203 }

    private var tooLarge: DownloadFailure { .tooLarge("the image from \(host) exceeds \(limits.image) bytes") }

    private var overlong: DownloadFailure { .origin("\(host) sent more bytes than the length it announced") }

    private mutating func refuse(_ failure: DownloadFailure) -> Bool {
        refusal = refusal ?? failure
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
            // Nothing is asked for compressed, and what is not unpacked cannot expand.
            guard !isImage || value.lowercased == "identity" || value.isEmpty else {
                return refuse(.origin("\(host) sent a content coding that was not asked for"))
            }
        case "location":
            if !value.isEmpty { location = location ?? String(decoding: value, as: UTF8.self) }
        // The fields that matter to a cache.
        case "age", "cache-control", "content-type", "date", "etag", "expires", "last-modified", "pragma",
            "retry-after", "vary":
            keep(value, of: known)
        default:
            break
        }
        return true
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
        if !isChunked, let announced, announced > limits.image { return refuse(tooLarge) }
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

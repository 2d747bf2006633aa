import CacheCore
import NIOCore
import Origins

/// Reads the first value of an attribute from the text in which libcurl presents the entries that a search found.
///
/// An entry is a line `DN: NAME`, and for each value a line `<tab>ATTRIBUTE:: BASE64`, or `<tab>ATTRIBUTE: TEXT` if all
/// its bytes are printable (curl, lib/openldap.c). The directory chooses names and values. A value without effects.
struct DirectoryEntryReader {
    enum Verdict {
        case image(ImageBytes)
        case missing
        /// The next search would find the same.
        case unusable(FetchFailure)
    }

    private enum Stage {
        /// In the tab and the attribute's name, of which this many bytes were equal so far.
        case name(Int)
        /// After the name's colon.
        case separator
        /// After a second colon.
        case base64
        case text
        /// In a line without the attribute.
        case otherLine
        case done
    }

    /// Bytes of all lines without the attribute.
    static let longestRest = 64 << 10

    private let host: String
    private let start: [UInt8]
    private let framing: ReplyFraming
    private let limit: Int
    private var stage = Stage.name(0)
    private var rest = 0
    private var bits: UInt32 = 0
    private var bitCount = 0
    private var isPadded = false
    private var image = ImageBytes.Builder()
    private var refusal: FetchFailure?
    /// Bytes of the text received so far.
    private(set) var bytes = 0

    /// - Parameter limit: bytes of the image.
    init(host: String, attribute: String, framing: ReplyFraming, limit: Int) {
        (self.host, self.framing, self.limit) = (host, framing, limit)
        start = [0x09] + attribute.utf8.map(\.asciiLowercased)
    }

    /// Returns whether to continue.
    mutating func receive(_ piece: UnsafeRawBufferPointer) -> Bool {
        bytes += piece.count
        var value: [UInt8] = []
        value.reserveCapacity(piece.count)
        var isFinished = false
        for byte in piece {
            isFinished = !accept(byte, &value)
            if isFinished { break }
        }
        image.buffer.writeBytes(value)
        if image.count > limit { refusal = .tooLarge("the image from \(host) exceeds \(limit) bytes") }
        return !isFinished && refusal == nil
    }

    /// Call it once, because it moves the image out.
    /// - Parameter isWhole: whether the search has ended; otherwise nil without a complete value.
    mutating func verdict(isWhole: Bool) -> Verdict? {
        if let refusal { return .unusable(refusal) }
        if case .done = stage { return .image(image.finish(framing)) }
        guard isWhole else { return nil }
        return image.count == 0 ? .missing : .unusable(.origin("the value from \(host) has no end"))
    }

    private mutating func accept(_ byte: UInt8, _ value: inout [UInt8]) -> Bool {
        let isEnd = byte == UInt8(ascii: "\n")
        switch stage {
        case .base64 where !isEnd: return decode(byte, &value)
        case .text where !isEnd:
            value.append(byte)
            return true
        case .base64, .text:
            // An empty value is no image.
            stage = image.count + value.count > 0 ? .done : .name(0)
            if case .done = stage { return false }
            return true
        case .name(let count) where count < start.count && byte.asciiLowercased == start[count]:
            stage = .name(count + 1)
        case .name(let count) where count == start.count && byte == UInt8(ascii: ":"):
            stage = .separator
        case .separator where byte == UInt8(ascii: ":"):
            stage = .base64
        case .separator where byte == UInt8(ascii: " "):
            stage = .text
        case .name, .separator, .otherLine, .done:
            stage = isEnd ? .name(0) : .otherLine
        }
        rest += 1
        if rest > Self.longestRest {
            refusal = .origin("the entries from \(host) exceed \(Self.longestRest) bytes without an image")
        }
        return refusal == nil
    }

    /// RFC 4648 section 4, after a blank.
    private mutating func decode(_ byte: UInt8, _ value: inout [UInt8]) -> Bool {
        switch byte {
        case UInt8(ascii: " ") where bitCount == 0 && image.count + value.count == 0: return true
        case UInt8(ascii: "="):
            isPadded = true
            return true
        default: break
        }
        guard !isPadded, let sextet = Self.sextet(byte) else {
            refusal = .badImage("from \(host): the value of the attribute is not Base64")
            return false
        }
        bits = bits << 6 | sextet
        bitCount += 6
        if bitCount >= 8 {
            bitCount -= 8
            value.append(UInt8(truncatingIfNeeded: bits >> UInt32(bitCount)))
        }
        return true
    }

    private static func sextet(_ byte: UInt8) -> UInt32? {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(byte - UInt8(ascii: "A"))
        case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(byte - UInt8(ascii: "a")) + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(byte - UInt8(ascii: "0")) + 52
        case UInt8(ascii: "+"): 62
        case UInt8(ascii: "/"): 63
        default: nil
        }
    }
}

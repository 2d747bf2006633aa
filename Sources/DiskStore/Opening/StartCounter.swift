import CacheCore
import LinuxSupport
import Logging

/// The number of this start, which grows with every start and is what makes epochs grow over restarts.
///
/// An epoch is a number of this start times 2^32, plus a count. A start that cannot be put on record, on a disk that is
/// read-only or has no room to write even in place, takes the upper half of what the start before it has: more than
/// that one has counted, less than the next start on record, and beginning with the seconds since 2020, so that several
/// such starts do not begin alike.
///
/// Two copies in the file `starts`, 512 bytes apart, written in turn and in place: a torn write spoils the older one
/// at most, and a full disk stops none.
enum StartCounter {
    static let fileName: FileName = "starts"
    /// Where the count ends. It then stays there: a daemon that starts is worth more than an epoch that grows.
    private static let last: UInt64 = 1 << 20
    private static let imageKeySize = 40
    private static let imageKeyDistance = 512
    private static let size = 2 * imageKeyDistance

    /// Counts this start, durably if the disk lets it, and says what its epochs are counted from.
    /// - Parameter now: seconds since 1970.
    static func epochBase(
        in state: Directory, disk: Disk, algorithms: Algorithms, now: Int64, log: Logger
    ) throws -> UInt64 {
        let contents = try disk.contents(of: fileName, in: state, limit: size)
        let (recorded, isDamaged) = contents?.withBytes { read($0, algorithms) } ?? (nil, false)
        // Days since 1970, for when nothing can be read: above any number of real starts but those of a daemon that
        // started more than once a day all its life. A damaged copy may have had one more.
        let today = UInt64(max(1, now / 86_400))
        let number = min(recorded.map { $0 + (isDamaged ? 2 : 1) } ?? (isDamaged ? today : 1), last)
        if isDamaged {
            log.warning("the counter of starts is damaged; it goes on", metadata: ["number": "\(number)"])
        }
        if number == last { log.error("the counter of starts is at its end; epochs no longer grow over restarts") }
        do {
            try record(number, over: isDamaged ? nil : contents, in: state, disk, algorithms)
            return number << 32
        } catch let error as SystemError {
            // A daemon that serves what there is is worth more (I9).
            log.error("the start cannot be put on record; epochs grow all the same", metadata: ["error": "\(error)"])
            let half: UInt64 = 1 << 31
            let since2020 = UInt64(max(0, now.subtractingReportingOverflow(1_577_836_800).partialValue))
            return (number - 1) << 32 + half + min(since2020, half / 2)
        }
    }

    /// Whether the file holds a copy that is none. What is missing is not damaged.
    static func isDamaged(in state: Directory, disk: Disk, algorithms: Algorithms) throws -> Bool {
        try disk.contents(of: fileName, in: state, limit: size)?.withBytes { read($0, algorithms).isDamaged } ?? false
    }

    /// The larger valid number, and whether a copy is damaged.
    private static func read(
        _ file: UnsafeRawBufferPointer, _ algorithms: Algorithms
    ) -> (number: UInt64?, isDamaged: Bool) {
        var (largest, isDamaged): (UInt64?, Bool) = (nil, file.count != size)
        for imageKey in [0, imageKeyDistance] where file.count >= imageKey + imageKeySize {
            var reader = ByteReader(UnsafeRawBufferPointer(rebasing: file[imageKey..<(imageKey + imageKeySize)]))
            guard let number = reader.integer(UInt64.self), let check = reader.take(32) else { continue }
            if 1...last ~= number, check.elementsEqual(Self.check(number, algorithms)) {
                largest = max(largest ?? 0, number)
            } else if number != 0 || check.contains(where: { $0 != 0 }) {
                isDamaged = true
            }
        }
        return (largest, isDamaged)
    }

    /// - Parameter contents: the file, if it is in order.
    private static func record(
        _ number: UInt64, over contents: Secret?, in state: Directory, _ disk: Disk, _ algorithms: Algorithms
    ) throws {
        let position = number % 2 == 0 ? 0 : imageKeyDistance
        let imageKey = [UInt8](withUnsafeBytes(of: number.bigEndian) { Array($0) }) + check(number, algorithms)
        if let contents, contents.count == size {
            try imageKey.withUnsafeBytes { bytes in
                try disk.overwrite(fileName, in: state, with: bytes, at: Int64(position))
            }
        } else {
            var whole = [UInt8](repeating: 0, count: size)
            whole.replaceSubrange(position..<(position + imageKeySize), with: imageKey)
            try disk.replace(fileName, in: state, with: whole)
        }
    }

    private static func check(_ number: UInt64, _ algorithms: Algorithms) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { algorithms.digest(of: $0).bytes }
    }
}

import CacheCore
import LinuxSupport
import Logging

/// The number of this start. It makes epochs grow across restarts.
///
/// The first epoch of start n is n · 2³². If n cannot be recorded, on a read-only disk or one that rejects writes in
/// place, it is (n - 1) · 2³² + 2³¹ + seconds since 2020: larger than the epochs of start n - 1, smaller than those of
/// the next recorded start, and different for each such start.
///
/// The file `starts` contains two copies 512 bytes apart, written alternately and in place. A torn write damages only
/// the older one, and a full disk does not matter.
enum StartCounter {
    static let fileName: FileName = "starts"
    /// The largest number. The count then stays: running is more important than growing epochs.
    private static let maximum: UInt64 = 1 << 20
    private static let copySize = 40
    private static let copyDistance = 512
    private static let size = 2 * copyDistance

    /// Records this start, durably if possible, and returns the base of its epochs.
    /// - Parameter now: seconds since 1970.
    static func epochBase(
        in state: Directory, disk: Disk, algorithms: Algorithms, now: Int64, log: Logger
    ) throws -> UInt64 {
        let contents = try disk.contents(of: fileName, in: state, limit: size)
        let (recorded, isDamaged) = contents?.withBytes { read($0, algorithms) } ?? (nil, false)
        // Without a readable number: the days since 1970, which exceed it unless the daemon started more than once a
        // day on average since then. A damaged copy may have been one larger.
        let today = UInt64(max(1, now / 86_400))
        let number = min(recorded.map { $0 + (isDamaged ? 2 : 1) } ?? (isDamaged ? today : 1), maximum)
        if isDamaged {
            log.warning("damaged counter of starts; continuing", metadata: ["number": "\(number)"])
        }
        if number == maximum { log.error("counter of starts at its maximum; epochs no longer grow across restarts") }
        do {
            try record(number, over: isDamaged ? nil : contents, in: state, disk, algorithms)
            return number << 32
        } catch let error as SystemError {
            // Serving is more important (I9).
            log.error(
                "start number not recorded; using epochs after the previous start's", metadata: ["reason": "\(error)"])
            let half: UInt64 = 1 << 31
            let since2020 = UInt64(max(0, now.subtractingReportingOverflow(1_577_836_800).partialValue))
            return (number - 1) << 32 + half + min(since2020, half / 2)
        }
    }

    /// Whether the file contains a damaged copy. A missing one is not damaged.
    static func isDamaged(in state: Directory, disk: Disk, algorithms: Algorithms) throws -> Bool {
        try disk.contents(of: fileName, in: state, limit: size)?.withBytes { read($0, algorithms).isDamaged } ?? false
    }

    /// Returns the larger valid number, and whether a copy is damaged.
    private static func read(
        _ file: UnsafeRawBufferPointer, _ algorithms: Algorithms
    ) -> (number: UInt64?, isDamaged: Bool) {
        var (largest, isDamaged): (UInt64?, Bool) = (nil, file.count != size)
        for position in [0, copyDistance] where file.count >= position + copySize {
            var reader = ByteReader(UnsafeRawBufferPointer(rebasing: file[position..<(position + copySize)]))
            guard let number = reader.integer(UInt64.self), let check = reader.read(32) else { continue }
            if 1...maximum ~= number, check.elementsEqual(Self.check(number, algorithms)) {
                largest = max(largest ?? 0, number)
            } else if number != 0 || check.contains(where: { $0 != 0 }) {
                isDamaged = true
            }
        }
        return (largest, isDamaged)
    }

    private static func record(
        _ number: UInt64, over contents: Secret?, in state: Directory, _ disk: Disk, _ algorithms: Algorithms
    ) throws {
        let position = number % 2 == 0 ? 0 : copyDistance
        let copy = [UInt8](withUnsafeBytes(of: number.bigEndian) { Array($0) }) + check(number, algorithms)
        if let contents, contents.count == size {
            try copy.withUnsafeBytes { bytes in
                try disk.overwrite(fileName, in: state, with: bytes, at: Int64(position))
            }
        } else {
            var whole = [UInt8](repeating: 0, count: size)
            whole.replaceSubrange(position..<(position + copySize), with: copy)
            try disk.replace(fileName, in: state, with: whole)
        }
    }

    private static func check(_ number: UInt64, _ algorithms: Algorithms) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { algorithms.digest(of: $0).bytes }
    }
}

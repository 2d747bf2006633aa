import COpenSSL
import Logging
import ThumbnailCache

/// The number of this start, which grows with every start and is what makes epochs grow over restarts.
///
/// Two copies in the file `starts`, 512 bytes apart, written in turn and in place: a torn write spoils the older one
/// at most, and a full disk stops none.
enum StartCounter {
    static let fileName: FileName = "starts"
    /// Where the count ends. It then stays there: a daemon that starts is worth more than an epoch that grows.
    static let last: UInt64 = 1 << 20
    private static let slotSize = 40
    private static let slotDistance = 512
    private static let size = 2 * slotDistance

    /// What the two copies say together.
    struct Reading: Equatable {
        /// The larger valid number.
        var number: UInt64?
        /// Whether a copy is damaged: it may have held one more.
        var isDamaged: Bool
    }

    /// The number of the start after that.
    /// - Parameter today: days since 1970: a floor for when nothing can be read, above any number of real starts but
    ///   those of a daemon that started more than once a day all its life.
    static func next(after reading: Reading, today: Int64) -> UInt64 {
        switch (reading.number, reading.isDamaged) {
        case (let number?, false): min(number + 1, last)
        case (let number?, true): min(number + 2, last)
        case (nil, false): 1
        case (nil, true): min(UInt64(max(1, today)), last)
        }
    }

    static func read(_ file: UnsafeRawBufferPointer, algorithms: Algorithms) -> Reading {
        var reading = Reading(number: nil, isDamaged: file.count != size)
        for slot in [0, slotDistance] where file.count >= slot + slotSize {
            var reader = ByteReader(UnsafeRawBufferPointer(rebasing: file[slot..<(slot + slotSize)]))
            guard let number = reader.integer(UInt64.self), let check = reader.take(32) else { continue }
            if number > 0, number <= last, check.elementsEqual(Self.check(number, algorithms)) {
                reading.number = max(reading.number ?? 0, number)
            } else if number != 0 || check.contains(where: { $0 != 0 }) {
                reading.isDamaged = true
            }
        }
        return reading
    }

    /// Counts this start, durably.
    static func advance(
        in state: Directory, disk: Disk, algorithms: Algorithms, now: Int64, log: Logger
    ) throws -> UInt64 {
        let contents = try disk.contents(of: fileName, in: state, limit: size)
        let reading = contents?.withBytes { read($0, algorithms: algorithms) } ?? Reading(number: nil, isDamaged: false)
        let number = next(after: reading, today: now / 86_400)
        if reading.isDamaged {
            log.warning("the counter of starts is damaged; it goes on", metadata: ["number": "\(number)"])
        }
        if number == last { log.error("the counter of starts is at its end; epochs no longer grow over restarts") }
        let place = number % 2 == 0 ? 0 : slotDistance
        let slot = [UInt8](withUnsafeBytes(of: number.bigEndian) { Array($0) }) + check(number, algorithms)
        if let contents, contents.count == size, !reading.isDamaged {
            try slot.withUnsafeBytes { bytes in
                try disk.overwrite(fileName, in: state, with: bytes, at: Int64(place))
            }
        } else {
            var whole = [UInt8](repeating: 0, count: size)
            whole.replaceSubrange(place..<(place + slotSize), with: slot)
            try whole.withUnsafeBytes { bytes in
                try disk.replace(fileName, in: state, with: bytes) { () throws(SystemError) in try disk.sync(state) }
            }
        }
        return number
    }

    private static func check(_ number: UInt64, _ algorithms: Algorithms) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { algorithms.digest(of: $0).bytes }
    }
}

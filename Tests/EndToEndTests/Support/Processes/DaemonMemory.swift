import CSpawn
import Foundation
import Glibc

extension Daemon {
    /// Which of some byte strings lie anywhere in memory that the daemon can read, its stacks among it. It stands still meanwhile.
    func remnants(of needles: [[UInt8]]) throws -> [[UInt8]] {
        guard let process else { throw Failure("the daemon does not run") }
        try process.standStill()
        defer { process.signal(SIGCONT) }
        let memory = open("/proc/\(pid)/mem", O_RDONLY | O_CLOEXEC)
        guard memory >= 0 else { throw Failure(systemCall: "open /proc/\(pid)/mem") }
        defer { close(memory) }
        var found: [[UInt8]] = []
        for range in try readableMemory() {
            var bytes = Data(count: range.count)
            let count = bytes.withUnsafeMutableBytes { pread(memory, $0.baseAddress, $0.count, range.lowerBound) }
            // A guard page, or one that was never touched and cannot be.
            guard count > 0 else { continue }
            bytes.withUnsafeBytes { bytes in
                found += needles.filter { cspawn_holds(bytes.baseAddress, count, $0, $0.count) != 0 }
            }
        }
        return found
    }

    private func readableMemory() throws -> [Range<Int>] {
        String(decoding: try read("/proc/\(pid)/maps"), as: UTF8.self).split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            let ends = words[0].split(separator: "-").compactMap { Int($0, radix: 16) }
            // What a file holds, and nobody can write to, is the file's own.
            let mayHold = words[1].hasPrefix("rw") || words[1].hasPrefix("r") && words[4] == "0"
            return mayHold && ends.count == 2 ? ends[0]..<ends[1] : nil
        }
    }
}

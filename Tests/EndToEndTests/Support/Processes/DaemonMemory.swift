import CSpawn
import Foundation
import Glibc

extension Daemon {
    /// Which of some byte strings lie anywhere in memory that the daemon or its helpers can read, their stacks among it.
    /// They stand still meanwhile.
    func remnants(of needles: [[UInt8]]) throws -> [[UInt8]] {
        guard let process else { throw Failure("the daemon does not run") }
        try process.standStill()
        defer { process.signal(SIGCONT) }
        let helpers = try helperProcesses()
        for helper in helpers { try Self.stop(helper) }
        defer { for helper in helpers { Glibc.kill(helper, SIGCONT) } }
        return try ([pid] + helpers).flatMap { try Self.remnants(of: needles, in: $0) }
    }

    /// The process that starts helpers for a daemon without systemd.
    func starterProcess() throws -> pid_t {
        let children = String(decoding: try read("/proc/\(pid)/task/\(pid)/children"), as: UTF8.self)
        guard let starter = children.split(separator: " ").first.flatMap({ pid_t($0) }) else {
            throw Failure("the daemon has no starter: \(children)")
        }
        return starter
    }

    /// The processes that download for it.
    func fetcherProcesses() throws -> [pid_t] {
        try helperProcesses().filter { Self.name(of: $0) == "thumbcached-fetcher" }
    }

    /// The renderer that it started, and that one's workers.
    func rendererProcesses() throws -> [pid_t] {
        try helperProcesses().filter { Self.name(of: $0) == "thumbcached-renderer" }
    }

    private static func name(of process: pid_t) -> String? {
        let words = (try? read("/proc/\(process)/cmdline"))?.split(separator: 0).first
        return words.map { String(decoding: $0, as: UTF8.self) }?.split(separator: "/").last.map { String($0) }
    }

    /// All that it started, and what those did.
    func helperProcesses() throws -> [pid_t] {
        var all: [pid_t] = []
        var parents = [pid]
        while let parent = parents.popLast() {
            let children = String(decoding: try read("/proc/\(parent)/task/\(parent)/children"), as: UTF8.self)
                .split(separator: " ").compactMap { pid_t($0) }
            all += children
            parents += children
        }
        return all
    }

    /// Returns when it stands still; it is no child of this process, so that it cannot be waited for.
    private static func stop(_ process: pid_t) throws {
        Glibc.kill(process, SIGSTOP)
        try eventually("process \(process) stands still") {
            let status = String(decoding: try read("/proc/\(process)/stat"), as: UTF8.self)
            return status.split(separator: ")").last?.hasPrefix(" T") == true
        }
    }

    private static func remnants(of needles: [[UInt8]], in pid: pid_t) throws -> [[UInt8]] {
        let memory = open("/proc/\(pid)/mem", O_RDONLY | O_CLOEXEC)
        guard memory >= 0 else { throw Failure(systemCall: "open /proc/\(pid)/mem") }
        defer { close(memory) }
        var found: [[UInt8]] = []
        for range in try readableMemory(of: pid) {
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

    private static func readableMemory(of pid: pid_t) throws -> [Range<Int>] {
        String(decoding: try read("/proc/\(pid)/maps"), as: UTF8.self).split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            let ends = words[0].split(separator: "-").compactMap { Int($0, radix: 16) }
            // What a file holds, and nobody can write to, is the file's own.
            let mayHold = words[1].hasPrefix("rw") || words[1].hasPrefix("r") && words[4] == "0"
            return mayHold && ends.count == 2 ? ends[0]..<ends[1] : nil
        }
    }
}

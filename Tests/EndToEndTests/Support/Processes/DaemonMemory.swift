import CSpawn
import Foundation
import Glibc

extension Daemon {
    /// Returns those byte strings that are found in readable memory of the daemon or its helpers, stacks included. The
    /// processes are stopped during the search.
    func remnants(of needles: [[UInt8]]) throws -> [[UInt8]] {
        guard let process else { throw Failure("the daemon does not run") }
        try process.suspend()
        defer { process.signal(SIGCONT) }
        let helpers = try helperProcesses()
        for helper in helpers { try Self.stop(helper) }
        defer { for helper in helpers { Glibc.kill(helper, SIGCONT) } }
        return try ([pid] + helpers).flatMap { try Self.remnants(of: needles, in: $0) }
    }

    /// The process that starts helpers if systemd does not.
    func forkServerProcess() throws -> pid_t {
        let children = try readText("/proc/\(pid)/task/\(pid)/children")
        guard let forkServer = children.split(separator: " ").first.flatMap({ pid_t($0) }) else {
            throw Failure("the daemon has no fork server: \(children)")
        }
        return forkServer
    }

    func fetcherProcesses() throws -> [pid_t] {
        try helperProcesses().filter { Self.name(of: $0) == "thumbcached-fetcher" }
    }

    /// The renderer's parent process and its workers.
    func rendererProcesses() throws -> [pid_t] {
        try helperProcesses().filter { Self.name(of: $0) == "thumbcached-renderer" }
    }

    private static func name(of process: pid_t) -> String? {
        let words = (try? read("/proc/\(process)/cmdline"))?.split(separator: 0).first
        return words.map { String(decoding: $0, as: UTF8.self) }?.split(separator: "/").last.map { String($0) }
    }

    /// All descendants of the daemon.
    func helperProcesses() throws -> [pid_t] {
        var all: [pid_t] = []
        var parents = [pid]
        while let parent = parents.popLast() {
            let children = try readText("/proc/\(parent)/task/\(parent)/children")
                .split(separator: " ").compactMap { pid_t($0) }
            all += children
            parents += children
        }
        return all
    }

    /// Whether a process has ended and its sockets are closed, also if nobody has reaped it: proc(5), stat.
    static func hasEnded(_ process: pid_t) -> Bool {
        guard let status = try? readText("/proc/\(process)/stat") else { return true }
        let fields = status.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 17 && fields[0] == "Z" && fields[17] == "1"
    }

    /// Sends SIGSTOP and polls the state, since waitid(2) works for child processes only.
    private static func stop(_ process: pid_t) throws {
        Glibc.kill(process, SIGSTOP)
        try eventually("process \(process) is stopped") {
            let status = try readText("/proc/\(process)/stat")
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
            // A guard page or another unreadable range.
            guard count > 0 else { continue }
            bytes.withUnsafeBytes { bytes in
                found += needles.filter { cspawn_holds(bytes.baseAddress, count, $0, $0.count) != 0 }
            }
        }
        return found
    }

    private static func readableMemory(of pid: pid_t) throws -> [Range<Int>] {
        try readText("/proc/\(pid)/maps").split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            let ends = words[0].split(separator: "-").compactMap { Int($0, radix: 16) }
            // Read-only mappings of files contain only what the file contains.
            let mayHold = words[1].hasPrefix("rw") || words[1].hasPrefix("r") && words[4] == "0"
            return mayHold && ends.count == 2 ? ends[0]..<ends[1] : nil
        }
    }
}

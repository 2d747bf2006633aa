import Foundation
import Glibc

/// A temporary directory for one test and the processes that the test started. Both are removed at the end. If the test
/// process is killed, a watchdog shell sees the end of its input and cleans up.
final class Machine {
    let directory: String
    private var children: [ChildProcess] = []
    private var numbers = 0
    private var watchdog: ChildProcess?
    private var watchdogInput: CInt = -1

    private static let watchdogScript = """
        pids=
        while read -r word pid; do
            case $word in
            started) pids="$pids $pid " ;;
            ended) pids=$(echo "$pids" | sed "s/ $pid / /") ;;
            esac
        done
        kill -9 $pids 2>/dev/null
        [ -n "$1" ] && rm -rf -- "$1"
        """

    fileprivate init() throws {
        // Short, because the path of a socket is limited to 107 bytes.
        var template = Array("/tmp/thumbcached-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(systemCall: "mkdtemp") }
        directory = String(decoding: template.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
        chmod(directory, 0o755)  // so that a peer of another uid reaches the socket

        var ends: [CInt] = [-1, -1]
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw Failure(systemCall: "socketpair") }
        defer { close(ends[0]) }
        watchdogInput = ends[1]
        let keep = ProcessInfo.processInfo.environment["THUMBCACHED_KEEP"] != nil
        watchdog = try ChildProcess(
            ["sh", "-c", Self.watchdogScript, "watchdog", keep ? "" : directory], input: .descriptor(ends[0]),
            ownSession: true)
    }

    fileprivate func end() {
        for child in children.reversed() {
            child.end()
            notifyWatchdog("ended \(child.pid)\n")
        }
        close(watchdogInput)
        while watchdog?.exitStatus() == nil { usleep(500) }
    }

    func path(_ name: String) -> String { "\(directory)/\(name)" }

    func nextNumber() -> Int {
        numbers += 1
        return numbers
    }

    /// Starts a program that is killed at the end of the test.
    func start(
        _ arguments: [String], environment: [String: String] = ProcessInfo.processInfo.environment,
        directory: String? = nil, input: ChildProcess.Stream = .null, output: ChildProcess.Stream = .null,
        errors: ChildProcess.Stream = .null, passing: [CInt] = []
    ) throws -> ChildProcess {
        let child = try ChildProcess(
            arguments, environment: environment, directory: directory, input: input, output: output, errors: errors,
            passing: passing)
        children.append(child)
        notifyWatchdog("started \(child.pid)\n")
        return child
    }

    /// Forgets a process that has ended, since its process id may be reused.
    func forget(_ child: ChildProcess) {
        children.removeAll { $0 === child }
        notifyWatchdog("ended \(child.pid)\n")
    }

    private func notifyWatchdog(_ line: String) {
        _ = line.withCString { Glibc.write(watchdogInput, $0, strlen($0)) }
    }

    func makeDirectory(_ name: String) throws -> String {
        try FileManager.default.createDirectory(atPath: path(name), withIntermediateDirectories: true)
        return path(name)
    }
}

/// Runs a test with a machine of its own, and prints the logs if the test throws.
func withMachine(_ body: (Machine) throws -> Void) throws {
    let machine = try Machine()
    defer { machine.end() }
    do {
        try body(machine)
    } catch {
        machine.printLogs()
        throw error
    }
}

func withMachine(_ body: (Machine) async throws -> Void) async throws {
    let machine = try Machine()
    defer { machine.end() }
    do {
        try await body(machine)
    } catch {
        machine.printLogs()
        throw error
    }
}

extension Machine {
    fileprivate func printLogs() {
        for log in Files.under(directory) where log.hasSuffix(".log") {
            let lines = String(decoding: (try? read(log)) ?? [], as: UTF8.self).split(separator: "\n").suffix(30)
            print("--- the end of \(log)\n\(lines.joined(separator: "\n"))")
        }
    }
}

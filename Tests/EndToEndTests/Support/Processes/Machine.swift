import Foundation
import Glibc

/// The small world of one test: a directory, and the processes started in it. Both end with it, also when the test
/// process itself is killed: then a shell that watches over it sees the end of a connection and clears up.
final class Machine {
    let directory: String
    private var children: [ChildProcess] = []
    private var numbers = 0
    private var watch: ChildProcess?
    private var watchLine: CInt = -1

    private static let watching = """
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
        // Short, because a socket's path may have 107 bytes.
        var template = Array("/tmp/thumbcached-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(systemCall: "mkdtemp") }
        directory = String(decoding: template.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
        chmod(directory, 0o755)  // so that a peer of another uid reaches the socket

        var ends: [CInt] = [-1, -1]
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw Failure(systemCall: "socketpair") }
        defer { close(ends[0]) }
        watchLine = ends[1]
        let keep = ProcessInfo.processInfo.environment["THUMBCACHED_KEEP"] != nil
        watch = try ChildProcess(
            ["sh", "-c", Self.watching, "watch", keep ? "" : directory], input: .descriptor(ends[0]), ownSession: true)
    }

    fileprivate func end() {
        for child in children.reversed() {
            child.end()
            tellWatch("ended \(child.pid)\n")
        }
        close(watchLine)
        while watch?.ending() == nil { usleep(500) }
    }

    func path(_ name: String) -> String { "\(directory)/\(name)" }

    func takeNumber() -> Int {
        numbers += 1
        return numbers
    }

    /// Starts a program that ends with the test at the latest.
    func start(
        _ arguments: [String], environment: [String: String] = ProcessInfo.processInfo.environment,
        directory: String? = nil, input: ChildProcess.Stream = .nowhere, output: ChildProcess.Stream = .nowhere,
        errors: ChildProcess.Stream = .nowhere, passing: [CInt] = []
    ) throws -> ChildProcess {
        let child = try ChildProcess(
            arguments, environment: environment, directory: directory, input: input, output: output, errors: errors,
            passing: passing)
        children.append(child)
        tellWatch("started \(child.pid)\n")
        return child
    }

    /// It has ended, and its process id may be another's by now.
    func forget(_ child: ChildProcess) {
        children.removeAll { $0 === child }
        tellWatch("ended \(child.pid)\n")
    }

    private func tellWatch(_ line: String) {
        _ = line.withCString { Glibc.write(watchLine, $0, strlen($0)) }
    }

    func makeDirectory(_ name: String) throws -> String {
        try FileManager.default.createDirectory(atPath: path(name), withIntermediateDirectories: true)
        return path(name)
    }
}

/// Runs a test in a machine of its own.
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

/// For what is asynchronous.
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

import Glibc
import LinuxSupport

/// A child process, started without a shell and with an explicit environment.
final class ChildProgram {
    private let process: pid_t
    private var isReaped = false

    /// - Parameters:
    ///   - environment: the whole environment of the child.
    ///   - input: standard input; like `output` and `errors`, /dev/null if nil.
    init(
        _ program: String, _ arguments: [String] = [], environment: [String: String] = [:], input: CInt? = nil,
        output: CInt? = nil, errors: CInt? = nil
    ) throws(SystemError) {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (number, descriptor) in [input, output, errors].enumerated() {
            if let descriptor {
                posix_spawn_file_actions_adddup2(&actions, descriptor, CInt(number))
            } else {
                posix_spawn_file_actions_addopen(&actions, CInt(number), "/dev/null", O_RDWR, 0)
            }
        }
        // The child must not inherit the signal mask of a runtime thread, nor the ignored SIGPIPE.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigaddset(&signals, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

        let line = ([program] + arguments).map { strdup($0) } + [nil]
        let variables = environment.sorted { $0.key < $1.key }.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in line + variables { free(text) } }
        var process = pid_t()
        let code = posix_spawn(&process, program, &actions, &attributes, line, variables)
        guard code == 0 else { throw SystemError("start \(program)", code: code) }
        self.process = process
    }

    deinit {
        guard !isReaped else { return }
        kill(process, SIGKILL)
        _ = wait()
    }

    func end() { if !isReaped { kill(process, SIGKILL) } }

    /// Returns the child's exit status; nil if a signal ended it.
    func wait() -> CInt? {
        var status: CInt = 0
        while waitpid(process, &status, 0) < 0, errno == EINTR {}
        isReaped = true
        return status & 0x7f == 0 ? status >> 8 & 0xff : nil
    }
}

enum Programs {
    /// Searches PATH. Relative entries are ignored.
    static func find(_ name: String, path: String?) -> String? {
        ((path ?? "/usr/local/bin:/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin").split(separator: ":")
            .map { "\($0)/\(name)" }.first { $0.hasPrefix("/") && access($0, X_OK) == 0 }
    }

    static func ownDirectory() throws(SystemError) -> String {
        var path = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &path, path.count)
        guard count > 0 else { throw SystemError("read /proc/self/exe") }
        let bytes = path.prefix(count).map { UInt8(bitPattern: $0) }
        return String(decoding: bytes.prefix(bytes.lastIndex(of: UInt8(ascii: "/")) ?? 0), as: UTF8.self)
    }

    /// The possible locations of a helper program: the build directory, and libexec below any prefix.
    static func places(_ name: String, beside directory: String) -> [String] {
        let prefix = directory.prefix(upTo: directory.lastIndex(of: "/") ?? directory.endIndex)
        return ["\(directory)/\(name)", "\(prefix)/libexec/\(name)"]
    }

    struct Finished {
        /// The exit status; nil if the program was killed, as after a timeout.
        let status: CInt?
        /// Standard output and standard error, at most 256 KiB.
        let output: [UInt8]

        var lines: [String] {
            String(decoding: output, as: UTF8.self).split(whereSeparator: \.isNewline).map(String.init)
        }
    }

    /// Runs a program until it exits, and kills it after the timeout.
    static func run(
        _ program: String, _ arguments: [String], environment: [String: String], milliseconds: Int = 10_000
    ) throws(SystemError) -> Finished {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw SystemError("pipe") }
        defer { close(ends[0]) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let child: ChildProgram
        do throws(SystemError) {
            child = try ChildProgram(program, arguments, environment: environment, output: ends[1], errors: ends[1])
        } catch {
            close(ends[1])
            throw error
        }
        close(ends[1])
        let deadline = nanoseconds(of: CLOCK_MONOTONIC) + Int64(milliseconds) * 1_000_000
        var output: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while output.count < 256 << 10 {
            let left = (deadline - nanoseconds(of: CLOCK_MONOTONIC)) / 1_000_000
            var waiting = pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0)
            let ready = poll(&waiting, 1, CInt(max(0, left)))
            if ready < 0, errno == EINTR { continue }
            guard ready > 0 else { break }
            let count = read(ends[0], &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return Finished(status: child.wait(), output: output) }
            output += chunk.prefix(count)
        }
        child.end()
        return Finished(status: child.wait(), output: output)
    }
}

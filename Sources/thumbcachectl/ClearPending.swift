import ArgumentParser
import Glibc

struct ClearPending: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove the markers of log-outs that the daemon has honoured.",
        discussion: """
            For root, behind a start of the daemon: see "Pending log-outs" in docs/operations.md. Markers that the daemon has \
            not yet honoured stay. Needs no daemon. Without it nothing goes wrong: a marker is honoured once.

            Example, in a unit:
              ExecStartPost=+-/usr/bin/thumbcachectl clear-pending
            """)

    @Option(help: ArgumentHelp("The directory of the markers.", valueName: "dir"))
    var pending = "/var/lib/thumbcached-pending"

    @Option(help: ArgumentHelp("The daemon's state directory, which holds its record.", valueName: "dir"))
    var state = "/var/lib/thumbcached"

    func run(in environment: Environment) throws(Failure) {
        let directory = MarkerDirectory(path: pending)
        guard directory.exists, let record = try Self.record(in: state) else { return }
        do throws(MarkerFailure) {
            try directory.remove(record)
        } catch {
            throw .local(error.description)
        }
    }

    /// The names that the daemon has on record; nil where it has none. The file is the daemon's, and this is root: it is
    /// not followed anywhere, and only what is a marker's name is taken from it.
    private static func record(in state: String) throws(Failure) -> [String]? {
        let path = "\(state)/honoured-logouts"
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw .local("cannot open \(path): \(reason(errno))")
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw .local("\(path) is no plain file")
        }
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try readAll(descriptor, limit: longestRecord)
        } catch {
            throw .local("cannot read \(path): \(reason(error.code))")
        }
        guard bytes.count <= longestRecord else { throw .local("\(path) is longer than \(longestRecord) bytes") }
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
            .filter { MarkerDirectory.uid(of: $0) != nil }
    }

    /// Bytes: a hundred thousand names, more than the daemon ever looks at.
    private static let longestRecord = 100_000 * 44
}

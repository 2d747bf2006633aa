import ArgumentParser
import Glibc
import LinuxSupport
import ThumbcacheProtocol

struct Logout: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "End a user's cache, or one session of it.",
        discussion: """
            After exit status 0, no data of the user can be read again, even after a power failure. The command \
            prints a receipt: caches ended, images and bytes in them ('-' if not counted yet), downloads cancelled, \
            remaining sessions, and the epoch. It succeeds if the user is not logged in.

            With --pending, the logout is not lost if the daemon is down, stuck or returns an error. Before the \
            request, a pending-logout file is created in that directory. The daemon processes it at its next start \
            at the latest. The exit status is then 5.

            Example for a logout hook:
              thumbcachectl logout --all --uid 1000 --pending /var/lib/thumbcached-pending --timeout 5
            """)

    @Argument(help: "The user to log out.")
    var user: String?

    @Flag(help: "Log out every user of the uid.")
    var all = false

    @Option(help: ArgumentHelp("End only this session; the cache ends with the last one.", valueName: "id"))
    var session: String?

    @Option(
        help: ArgumentHelp(
            "Leave a pending-logout file in this directory if the daemon fails. Requires --all.",
            valueName: "dir"), completion: .directory)
    var pending: String?

    @Option(
        help: ArgumentHelp("Timeout of the whole command: seconds, or with a unit as in 1m.", valueName: "time"),
        transform: seconds)
    var timeout = Environment.timeout

    @OptionGroup var target: TargetOptions
    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user, all: all)
        if pending != nil, !all || session != nil {
            throw ValidationError("--pending requires --all and excludes --session")
        }
        if pending != nil, target.allUids {
            throw ValidationError("--pending excludes --all-uids")
        }
        if pending == "" { throw ValidationError("--pending is empty; expected the directory of pending-logout files") }
        try thumbcachectl.validate("timeout", timeout, in: 1...86_400, "seconds")
    }

    func run(in environment: Environment) async throws(Failure) {
        let receipt =
            if let pending {
                try await request(environment, orLeavePendingFileIn: PendingLogoutDirectory(path: pending))
            } else {
                try await request(environment)
            }
        environment.showReceipt(receipt, output, after: "the logout is complete")
    }

    private func request(_ environment: Environment) async throws(Failure) -> Value {
        let request = words("LOGOUT", user ?? "*") + option("SESSION", session) + target.words
        return try await environment.reply(to: request, daemon, within: timeout)
    }

    /// Creates the pending-logout file before the request, so that it exists even if this process is killed meanwhile.
    private func request(_ environment: Environment, orLeavePendingFileIn directory: PendingLogoutDirectory)
        async throws(Failure)
        -> Value
    {
        let uid = target.uid ?? geteuid()
        let pendingFile: PendingLogoutDirectory.PendingFile
        do throws(SystemError) {
            pendingFile = try directory.leave(uid: uid)
        } catch {
            environment.report("thumbcachectl: cannot \(error); continuing without a pending-logout file", .warning)
            return try await request(environment)
        }
        let receipt: Value
        do throws(Failure) {
            receipt = try await request(environment)
        } catch {
            remove(pendingFile.older, from: directory, environment)
            throw Failure(
                .pending,
                "\(error.message); left \(directory.path)/\(pendingFile.name): the daemon will process this logout "
                    + "within seconds if it is running, or else at its next start")
        }
        remove(pendingFile.older + [pendingFile.name], from: directory, environment)
        return receipt
    }

    /// A file that remains is processed again at most once, before the next login of the uid. That is no failure.
    private func remove(_ names: [String], from directory: PendingLogoutDirectory, _ environment: Environment) {
        do throws(SystemError) {
            try directory.remove(names)
        } catch {
            environment.report("thumbcachectl: cannot \(error)", .warning)
        }
    }
}

import ArgumentParser
import Glibc
import LinuxSupport
import ThumbcacheProtocol

struct Logout: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "End a user's cache, or one session of it.",
        discussion: """
            When this returns with status 0, nothing of the user can be read again, not even after a power cut. It \
            prints a receipt: caches ended, images and bytes that were held ('-' where they had not been counted yet), \
            downloads cancelled, sessions that remain, and the epoch. A user who is not logged in is no error.

            With --pending a log-out is not lost when the daemon is down, stuck or refuses: a marker in that \
            directory, made before the daemon is asked, tells it to do it later, at its next start at the latest. The \
            exit status is then 5.

            Example, for a log-out hook:
              thumbcachectl logout --all --uid 1000 --pending /var/lib/thumbcached-pending --timeout 5
            """)

    @Argument(help: "The account that logs out.")
    var user: String?

    @Flag(help: "Log out every user of the uid.")
    var all = false

    @Option(help: ArgumentHelp("End this session only; the cache ends with the last one.", valueName: "id"))
    var session: String?

    @Option(
        help: ArgumentHelp(
            "Leave a marker there if the daemon does not do it. Needs --all; only root may write there.",
            valueName: "dir"), completion: .directory)
    var pending: String?

    @Option(
        help: ArgumentHelp("How long all of it may take: seconds, or with a unit as in 1m.", valueName: "time"),
        transform: seconds)
    var timeout = Environment.timeout

    @OptionGroup var target: TargetOptions
    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user, all: all)
        if pending != nil, !all || session != nil {
            throw ValidationError("--pending is for the log-out of a whole uid: it needs --all, and excludes --session")
        }
        if pending != nil, target.allUids {
            throw ValidationError("--pending is for the log-out of one uid: it excludes --all-uids")
        }
        if pending == "" { throw ValidationError("--pending is empty; name the directory of the markers") }
        try thumbcachectl.validate("timeout", timeout, in: 1...86_400, "seconds")
    }

    func run(in environment: Environment) async throws(Failure) {
        let receipt =
            if let pending {
                try await ask(environment, orLeaveMarkerIn: MarkerDirectory(path: pending))
            } else {
                try await ask(environment)
            }
        environment.showReceipt(receipt, output, behind: "the log-out is done")
    }

    private func ask(_ environment: Environment) async throws(Failure) -> Value {
        let request = words("LOGOUT", user ?? "*") + option("SESSION", session) + target.words
        return try await environment.ask(request, daemon, within: timeout)
    }

    /// The marker comes first: a hook that is killed while it waits for the daemon has left it.
    private func ask(_ environment: Environment, orLeaveMarkerIn directory: MarkerDirectory) async throws(Failure)
        -> Value
    {
        let uid = target.uid ?? geteuid()
        let marker: MarkerDirectory.Marker
        do throws(SystemError) {
            marker = try directory.leave(uid: uid)
        } catch {
            environment.complain("thumbcachectl: cannot \(error); the daemon is asked without a marker", .warning)
            return try await ask(environment)
        }
        let receipt: Value
        do throws(Failure) {
            receipt = try await ask(environment)
        } catch {
            remove(marker.older, from: directory, environment)
            throw Failure(
                .pending,
                "\(error.message); left the marker \(directory.path)/\(marker.name): the daemon honours it before it "
                    + "serves anyone after a start, and within seconds where it runs")
        }
        remove(marker.older + [marker.name], from: directory, environment)
        return receipt
    }

    /// What stays is processed once more at most, and before the uid logs in again: no reason to fail.
    private func remove(_ names: [String], from directory: MarkerDirectory, _ environment: Environment) {
        do throws(SystemError) {
            try directory.remove(names)
        } catch {
            environment.complain("thumbcachectl: cannot \(error)", .warning)
        }
    }
}

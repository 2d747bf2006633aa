import ArgumentParser
import CacheCore
import DiskStore
import ThumbcacheProtocol

struct Verify: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the integrity of the store, or prove a logout.",
        discussion: """
            Reads the store's files without the daemon, and changes nothing. Every image, session and key file is \
            opened with the keys that are present. The command prints the number of logged-in users, what is stored, \
            what waits for deletion, pending logouts, and one line for each problem: torn or altered images, images \
            and sessions without a key, abandoned temporary files, foreign files, wrong owners and modes. Suspicious \
            files are re-checked for up to four seconds, since files change while the daemon runs.

            With --user, the command proves a logout: it reports that the store contains nothing of that user, under \
            any uid or under that of --uid, or lists what remains. Files in the trash carry no user's name, and no \
            key opens them.

            The store is that of the daemon that other commands use: your own, or the machine's. Its configuration \
            names the directories; --cache-directory, --state-directory, --key-directory and --pending override them. \
            Run it as root or as the user that the daemon runs as.

            Exit status: 0 no problem, or nothing of the user; 1 a problem, or something of the user, was found; \
            2 invalid usage; 3 the store, or a part of it, could not be read.

            Examples:
              sudo thumbcachectl verify
              sudo thumbcachectl verify --user alice@example.org
            """)

    @Option(help: ArgumentHelp("Search for every trace of this user.", valueName: "user"))
    var user: String?

    @Option(help: ArgumentHelp("With --user: search only under this uid.", valueName: "n"))
    var uid: UInt32?

    @Option(help: ArgumentHelp("Directory of the images.", valueName: "dir"), completion: .directory)
    var cacheDirectory: String?

    @Option(
        help: ArgumentHelp("Directory of sessions and, by default, keys.", valueName: "dir"), completion: .directory)
    var stateDirectory: String?

    @Option(
        help: ArgumentHelp("Directory of keys and names.key, if not the state directory.", valueName: "dir"),
        completion: .directory)
    var keyDirectory: String?

    @Option(
        help: ArgumentHelp(
            "Directory of pending-logout files; by default the state directory with '-pending' appended.",
            valueName: "dir"), completion: .directory)
    var pending: String?

    @Option(
        help: ArgumentHelp("The daemon's configuration, if not the default file.", valueName: "file"),
        completion: .file())
    var config: String?

    @OptionGroup var daemon: DaemonOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if let user {
            try thumbcachectl.validate(user: user)
            if user.isEmpty { throw ValidationError("--user is empty; expected the user to search for") }
        }
        if uid != nil, user == nil { throw ValidationError("--uid requires --user") }
        let directories = [
            ("cache-directory", cacheDirectory), ("state-directory", stateDirectory),
            ("key-directory", keyDirectory), ("pending", pending),
        ]
        for case (let name, let path?) in directories where path.utf8.first != UInt8(ascii: "/") {
            throw ValidationError("--\(name) must be an absolute path")
        }
    }

    func run(in environment: Environment) async throws(Failure) {
        let store = try store(environment)
        let inspection: StoreInspection
        do {
            inspection = try StoreInspection(store)
        } catch {
            throw Failure(.unreachable, PlainText.escape("\(error)"))
        }
        if let user { return try showTraces(of: user, inspection, environment) }
        let report = inspection.report()
        try environment.show(output.json ? report.value : .array(report.lines.map { .simpleString($0) }), output)
        try fail(report.unread, or: report.findings.isEmpty ? nil : "the store has problems")
    }

    private func showTraces(of user: String, _ inspection: StoreInspection, _ environment: Environment) throws(Failure)
    {
        let traces: UserTraces
        do {
            traces = try inspection.traces(of: OpaqueID(user), uid: uid)
        } catch {
            throw Failure(.unreachable, PlainText.escape("\(error)"))
        }
        let lines = traces.lines(of: user, uid: uid).map { Value.simpleString($0) }
        try environment.show(output.json ? traces.value(of: user, uid: uid) : .array(lines), output)
        let remnant = traces.pendingLogouts.isEmpty ? "the store contains data of the user" : "a logout is pending"
        try fail(traces.unread, or: traces.isNothing ? nil : remnant)
    }

    /// Throws if a part of the store could not be read, which may hide anything, or else for the reason.
    private func fail(_ unread: [UnreadPart], or reason: String?) throws(Failure) {
        if let first = unread.first {
            let others = unread.count > 1 ? " (first of \(unread.count) errors)" : ""
            throw Failure(.unreachable, PlainText.escape("\(first.path): \(first.reason)\(others)"))
        }
        if let reason { throw Failure(.refused, reason) }
    }

    /// The store's directories, from the options or else from the daemon's configuration.
    private func store(_ environment: Environment) throws(Failure) -> DiskStoreConfiguration {
        let daemon = try InstalledDaemon(environment, daemon, configuration: config)
        let isGiven = cacheDirectory != nil && stateDirectory != nil
        guard isGiven || daemon.configuration != nil else {
            throw Failure(
                .unreachable,
                "cannot read \(daemon.configurationFile), which names the store's directories; "
                    + "set --cache-directory and --state-directory")
        }
        guard let cache = cacheDirectory ?? daemon.cache, let state = stateDirectory ?? daemon.state else {
            throw Failure(
                .usage, "the store's directories are unknown; set --cache-directory and --state-directory, or HOME")
        }
        let keys = keyDirectory ?? (stateDirectory == nil && daemon.hasRuntimeKeys ? daemon.keyParent : nil)
        let pendingFiles = pending ?? (stateDirectory == nil ? daemon.pending : nil) ?? "\(trimmed(state))-pending"
        return DiskStoreConfiguration(
            cacheDirectory: trimmed(cache), stateDirectory: trimmed(state), runtimeDirectory: keys.map(trimmed),
            keys: keys == nil ? .disk : .runtime, pendingLogouts: trimmed(pendingFiles))
    }

    private func trimmed(_ path: String) -> String {
        var path = path[...]
        while path.count > 1, path.last == "/" { path.removeLast() }
        return String(path)
    }
}

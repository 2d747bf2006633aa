import ArgumentParser
import CacheCore
import DiskStore
import ThumbcacheProtocol

struct Verify: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Look the store over: is it whole, and was somebody forgotten?",
        discussion: """
            Reads the store's own files, whether the daemon runs or not, and changes nothing. Every image, session and \
            key file is opened with the keys that are there. It prints how many users are logged in, what is held, \
            what waits to be deleted, which log-outs wait for the daemon, and one line for each thing that is wrong: \
            torn or altered images, images and sessions without a key, temporary files that nobody finishes, what the \
            store did not make, wrong owners and modes. What looks wrong is looked at again for up to four seconds, \
            since files come and go while the daemon works.

            With --user it proves a log-out: it says that nothing of that user is in the store, under any uid or \
            under that of --uid, or lists what there is. What lies in the trash has no user's name any more, and no \
            key opens it.

            The store is that of the daemon that other commands would ask: your own, or the machine's. Its configuration \
            says where the directories are; --cache-directory, --state-directory, --key-directory and --pending replace \
            what it says. Run it as root or as the user that the daemon runs as.

            Exit status: 0 all is whole, or nothing of the user is there; 1 something is wrong, or something of the \
            user is there; 2 wrong usage; 3 the store, or a part of it, could not be read.

            Examples:
              sudo thumbcachectl verify
              sudo thumbcachectl verify --user alice@example.org
            """)

    @Option(help: ArgumentHelp("Look for this user alone, and for every trace of it.", valueName: "user"))
    var user: String?

    @Option(help: ArgumentHelp("With --user: of this uid alone.", valueName: "n"))
    var uid: UInt32?

    @Option(help: ArgumentHelp("Directory of the images.", valueName: "dir"), completion: .directory)
    var cacheDirectory: String?

    @Option(help: ArgumentHelp("Directory of the log-ins.", valueName: "dir"), completion: .directory)
    var stateDirectory: String?

    @Option(
        help: ArgumentHelp("Directory of keys and names.key, if not the state directory.", valueName: "dir"),
        completion: .directory)
    var keyDirectory: String?

    @Option(
        help: ArgumentHelp(
            "Directory of pending log-outs; by default the state directory with '-pending' appended.",
            valueName: "dir"), completion: .directory)
    var pending: String?

    @Option(
        help: ArgumentHelp("The daemon's configuration, if not the usual one.", valueName: "file"),
        completion: .file())
    var config: String?

    @OptionGroup var daemon: DaemonOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if let user {
            try thumbcachectl.validate(user: user)
            if user.isEmpty { throw ValidationError("--user is empty; name the account that may be left") }
        }
        if uid != nil, user == nil { throw ValidationError("--uid says whose --user is meant: name that one, too") }
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
        if let user { return try look(for: user, inspection, environment) }
        let report = inspection.report()
        try environment.show(output.json ? report.value : .array(report.lines.map { .simpleString($0) }), output)
        try fail(report.unread, or: report.findings.isEmpty ? nil : "the store is not whole")
    }

    private func look(for user: String, _ inspection: StoreInspection, _ environment: Environment) throws(Failure) {
        let traces: UserTraces
        do {
            traces = try inspection.traces(of: OpaqueID(user), uid: uid)
        } catch {
            throw Failure(.unreachable, PlainText.escape("\(error)"))
        }
        let lines = traces.lines(of: user, uid: uid).map { Value.simpleString($0) }
        try environment.show(output.json ? traces.value(of: user, uid: uid) : .array(lines), output)
        let isThere = traces.pendingLogouts.isEmpty ? "something of the user is there" : "a log-out is not done yet"
        try fail(traces.unread, or: traces.isNothing ? nil : isThere)
    }

    /// What could not be read decides: nobody knows what is there.
    private func fail(_ unread: [UnreadPart], or reason: String?) throws(Failure) {
        if let first = unread.first {
            let others = unread.count > 1 ? " (and so on: \(unread.count) in all)" : ""
            throw Failure(.unreachable, PlainText.escape("\(first.path): \(first.reason)\(others)"))
        }
        if let reason { throw Failure(.refused, reason) }
    }

    /// Where the store is: by the options, or else by the daemon's configuration.
    private func store(_ environment: Environment) throws(Failure) -> DiskStoreConfiguration {
        let daemon = try InstalledDaemon(environment, daemon, configuration: config)
        let isGiven = cacheDirectory != nil && stateDirectory != nil
        guard isGiven || daemon.configuration != nil else {
            throw Failure(
                .unreachable,
                "cannot read \(daemon.configurationFile), which says where the store is; "
                    + "name --cache-directory and --state-directory")
        }
        guard let cache = cacheDirectory ?? daemon.cache, let state = stateDirectory ?? daemon.state else {
            throw Failure(
                .usage, "nothing says where the store is: name --cache-directory and --state-directory, or set HOME")
        }
        let keys = keyDirectory ?? (stateDirectory == nil && daemon.hasRuntimeKeys ? daemon.keyParent : nil)
        let markers = pending ?? (stateDirectory == nil ? daemon.pending : nil) ?? "\(trimmed(state))-pending"
        return DiskStoreConfiguration(
            cacheDirectory: trimmed(cache), stateDirectory: trimmed(state), runtimeDirectory: keys.map(trimmed),
            keys: keys == nil ? .disk : .runtime, pendingLogouts: trimmed(markers))
    }

    /// Without the slashes at the end, as the paths of files in it begin.
    private func trimmed(_ path: String) -> String {
        var path = path[...]
        while path.count > 1, path.last == "/" { path.removeLast() }
        return String(path)
    }
}

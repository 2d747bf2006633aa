import ArgumentParser
import LinuxSupport
import NIOCore
import Thumbcache
import ThumbcacheProtocol

/// The program: what `--help` shows first.
struct Thumbcachectl: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcachectl",
        abstract: "Talk to thumbcached, the cache of profile pictures.",
        usage: "thumbcachectl [--socket <path>] <command>",
        discussion: """
            A user's cache exists from login to logout. In between, get returns pictures, from the cache or else from \
            the user's origin, put stores one, and purge removes them. You only ever see your own caches: the daemon \
            goes by the uid that the kernel reports.

            The daemon is looked for at --socket, else at THUMBCACHED_SOCKET, else, unless you are root, at \
            $XDG_RUNTIME_DIR/\(ThumbcacheSocket.inSession), else at \(ThumbcacheSocket.ofMachine).

            Exit status: 0 done; 1 the daemon said no, its error is on stderr; 2 wrong usage; 3 the daemon cannot be \
            reached; 4 there is no such image; 5 the log-out is not done yet, but a marker was left for it. \
            For verify and doctor: 1 something is wrong or left, 3 not all could be looked at.

            Example:
              thumbcachectl login alice
              thumbcachectl put alice bob bob.png
              thumbcachectl get alice bob > copy.png
              thumbcachectl logout alice
            """,
        version: "thumbcachectl \(Version.current)",
        subcommands: [
            Login.self, Logout.self, Get.self, Show.self, Put.self, Warm.self, Purge.self, Stat.self, Users.self,
            Top.self, Watch.self, Info.self, Metrics.self, Ping.self, Doctor.self, Verify.self,
            Fleet.self,
        ])

    @OptionGroup var daemon: DaemonOptions

    /// ArgumentParser's message about a wrong command line in the form of this program's own errors: after its name, in
    /// lower case.
    static func errorText(_ message: String) -> String {
        var sentence = message.hasPrefix("Error: ") ? message.dropFirst("Error: ".count) : message[...]
        if let first = sentence.first, first.isUppercase, sentence.dropFirst().first?.isLowercase == true {
            sentence = first.lowercased() + sentence.dropFirst()
        }
        return "thumbcachectl: \(sentence)"
    }

    /// What to say where the first word is no command; nil where it is one, or there is none.
    static func unknownCommand(_ arguments: [String]) -> String? {
        var rest = arguments[...]
        while let first = rest.first, first.hasPrefix("--socket") {
            rest = rest.dropFirst(first == "--socket" ? 2 : 1)
        }
        let known = configuration.subcommands.map { $0._commandName } + ["help"]
        guard let word = rest.first, !word.hasPrefix("-"), !known.contains(word) else { return nil }
        let meant = closestWord(to: word, among: known).map { "did you mean \($0)?" } ?? "--help lists those there are"
        return "there is no command '\(PlainText.escape(word))'; \(meant)"
    }
}

/// A subcommand. Everything it touches is in the environment that it is handed.
protocol DaemonCommand: ParsableCommand {
    func run(in environment: Environment) async throws(Failure)
}

/// Where the daemon is: may stand before or behind the subcommand.
struct DaemonOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The daemon's Unix socket.", valueName: "path"), completion: .file())
    var socket: String?
}

/// How results are printed.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print JSON, for programs.")
    var json = false
}

/// For log-out and purge: whom they are done to.
struct TargetOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Act for another uid. Only for admins, see access.admins in the daemon's configuration.", valueName: "n"))
    var uid: UInt32?

    @Flag(help: "Act for every uid of the machine. Only for admins.")
    var allUids = false

    var words: [ByteBuffer] { allUids ? thumbcachectl.words("UID", "*") : option("UID", uid) }

    func validate() throws {
        if allUids, uid != nil { throw ValidationError("--all-uids is every uid: no --uid can stand beside it") }
    }
}

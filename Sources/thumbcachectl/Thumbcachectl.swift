import ArgumentParser
import LinuxSupport
import NIOCore
import Thumbcache
import ThumbcacheProtocol

struct Thumbcachectl: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcachectl",
        abstract: "Control thumbcached, the cache of profile images.",
        usage: "thumbcachectl [--socket <path>] <command>",
        discussion: """
            A user's cache exists from login to logout. In between, get returns images from the cache or the user's \
            origin, put stores an image, and purge removes images. You can access only the caches of your own uid, \
            which the kernel reports to the daemon.

            The socket is the first of: --socket; THUMBCACHED_SOCKET; \
            $XDG_RUNTIME_DIR/\(ThumbcacheSocket.inSession), if it exists and you are not root; \
            \(ThumbcacheSocket.ofMachine).

            Exit status: 0 success; 1 the daemon returned an error; 2 invalid usage; 3 the daemon cannot be reached; \
            4 no such image; 5 the logout has not happened yet, but a pending-logout file was left for the daemon. \
            For verify and doctor: 1 a problem or a remnant was found; 3 the check was incomplete.

            Example:
              thumbcachectl login alice
              thumbcachectl put alice bob bob.png
              thumbcachectl get alice bob > copy.png
              thumbcachectl logout alice
            """,
        version: "thumbcachectl \(Version.current)",
        subcommands: [
            Login.self, Logout.self, Get.self, Show.self, Put.self, Warm.self, Purge.self, Stat.self,
            Explain.self, Users.self, Top.self, Watch.self, Info.self, Metrics.self, Ping.self, Doctor.self,
            Verify.self,
            Fleet.self,
        ])

    @OptionGroup var daemon: DaemonOptions

    static func errorText(_ message: String) -> String {
        var sentence = message.hasPrefix("Error: ") ? message.dropFirst("Error: ".count) : message[...]
        if let first = sentence.first, first.isUppercase, sentence.dropFirst().first?.isLowercase == true {
            sentence = first.lowercased() + sentence.dropFirst()
        }
        return "thumbcachectl: \(sentence)"
    }

    /// Returns a message if the first word is not a command, with the closest command as a suggestion.
    static func unknownCommand(_ arguments: [String]) -> String? {
        var rest = arguments[...]
        while let first = rest.first, first.hasPrefix("--socket") {
            rest = rest.dropFirst(first == "--socket" ? 2 : 1)
        }
        let known = configuration.subcommands.map { $0._commandName } + ["help"]
        guard let word = rest.first, !word.hasPrefix("-"), !known.contains(word) else { return nil }
        let meant = closestWord(to: word, among: known).map { "did you mean \($0)?" } ?? "--help lists the commands"
        return "unknown command '\(PlainText.escape(word))'; \(meant)"
    }
}

/// A subcommand.
protocol DaemonCommand: ParsableCommand {
    func run(in environment: Environment) async throws(Failure)
}

/// The location of the daemon. Accepted before and after the subcommand.
struct DaemonOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The daemon's Unix socket.", valueName: "path"), completion: .file())
    var socket: String?
}

struct OutputOptions: ParsableArguments {
    @Flag(help: "Print JSON.")
    var json = false
}

/// The accounts that a logout or purge applies to.
struct TargetOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Act on another uid. Admins only; see access.admins in the daemon's configuration.", valueName: "n"))
    var uid: UInt32?

    @Flag(help: "Act on every uid of the machine. Admins only.")
    var allUids = false

    var words: [ByteBuffer] { allUids ? thumbcachectl.words("UID", "*") : option("UID", uid) }

    func validate() throws {
        if allUids, uid != nil { throw ValidationError("--all-uids and --uid exclude each other") }
    }
}

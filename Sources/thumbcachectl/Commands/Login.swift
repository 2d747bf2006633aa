import ArgumentParser
import Glibc
import LinuxSupport
import NIOCore

struct Login: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Open a user's cache.",
        discussion: """
            Nothing is kept for a user before this, and nothing is left after logout. A user can have several \
            sessions, as with two windows open; the cache ends with the last.

            Tokens, if the origin wants them, are read from a file or from standard input, never taken from the \
            command line, where every process of the machine could read them.

            Example:
              secret-tool lookup service avatars | thumbcachectl login alice --token-file -
            """)

    @Argument(help: "The account whose log-in owns the cache, such as alice@example.org.")
    var user: String

    @Option(help: ArgumentHelp("Name this session, to log it out alone.", valueName: "id"))
    var session: String?

    @Option(help: ArgumentHelp("Download from this origin of the daemon's configuration.", valueName: "name"))
    var origin: String?

    @Option(
        help: ArgumentHelp("Read the access token for downloads from this file, or from '-'.", valueName: "file"),
        completion: .file())
    var tokenFile: String?

    @Option(
        help: ArgumentHelp(
            "Read the refresh token, with which the daemon renews access tokens, from this file, or from '-'.",
            valueName: "file"), completion: .file())
    var refreshTokenFile: String?

    @OptionGroup var daemon: DaemonOptions

    /// More than any daemon accepts.
    static let longestToken = 1 << 20

    func validate() throws {
        try thumbcachectl.validate(user: user)
        guard tokenFile != "-" || refreshTokenFile != "-" else {
            throw ValidationError("Standard input holds one token: name a file for the other.")
        }
    }

    func run(in environment: Environment) async throws(Failure) {
        let token = try self.token("TOKEN", tokenFile)
        let refresh = try self.token("REFRESH", refreshTokenFile)
        let options = option("SESSION", session) + option("ORIGIN", origin) + token + refresh
        _ = try await environment.ask(words("LOGIN", user) + options, daemon)
    }

    /// A token from a file, without the line break at its end; nothing where no file is named.
    private func token(_ name: String, _ file: String?) throws(Failure) -> [ByteBuffer] {
        guard let file else { return [] }
        if file == "-", isTerminal(STDIN_FILENO) {
            throw Failure(
                .usage, "standard input is a terminal, which would show the token; pipe it in, or name a file")
        }
        let bytes = try readFile(file, what: "a token", limit: Self.longestToken)
        let token = bytes.withoutLineBreak
        guard !token.isEmpty else { throw Failure(.usage, "\(file == "-" ? "standard input" : file) holds no token") }
        return words(name) + [ByteBuffer(bytes: token)]
    }
}

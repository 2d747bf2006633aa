import ArgumentParser
import Glibc
import LinuxSupport
import NIOCore

struct Login: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Open a user's cache.",
        discussion: """
            Nothing is stored for a user before login, and nothing remains after logout. A user can have several \
            sessions, for example two windows; the cache ends with the last one.

            Tokens for the origin are read from a file or from standard input. They are not accepted as arguments, \
            because every process of the machine can read those.

            Example:
              secret-tool lookup service avatars | thumbcachectl login alice --token-file -
            """)

    @Argument(help: "The user who owns the cache, such as alice@example.org.")
    var user: String

    @Option(help: ArgumentHelp("Name of this session, so that it can be logged out alone.", valueName: "id"))
    var session: String?

    @Option(help: ArgumentHelp("Download from this origin of the daemon's configuration.", valueName: "name"))
    var origin: String?

    @Option(
        help: ArgumentHelp("Read the access token for downloads from this file, or from '-'.", valueName: "file"),
        completion: .file())
    var tokenFile: String?

    @Option(
        help: ArgumentHelp(
            "Read the refresh token, which the daemon uses to renew access tokens, from this file, or from '-'.",
            valueName: "file"), completion: .file())
    var refreshTokenFile: String?

    @OptionGroup var daemon: DaemonOptions

    /// In bytes; larger than any limit of the daemon.
    static let longestToken = 1 << 20

    func validate() throws {
        try thumbcachectl.validate(user: user)
        guard tokenFile != "-" || refreshTokenFile != "-" else {
            throw ValidationError("standard input can supply only one token; name a file for the other")
        }
    }

    func run(in environment: Environment) async throws(Failure) {
        let token = try self.token("TOKEN", tokenFile)
        let refresh = try self.token("REFRESH", refreshTokenFile)
        let options = option("SESSION", session) + option("ORIGIN", origin) + token + refresh
        _ = try await environment.reply(to: words("LOGIN", user) + options, daemon)
    }

    /// Reads a token without the line break at its end. Returns nothing if no file is named.
    private func token(_ name: String, _ file: String?) throws(Failure) -> [ByteBuffer] {
        guard let file else { return [] }
        if file == "-", isTerminal(STDIN_FILENO) {
            throw Failure(
                .usage, "standard input is a terminal, which would display the token; use a pipe, or name a file")
        }
        let bytes = try readFile(file, what: "a token", limit: Self.longestToken)
        let token = bytes.withoutLineBreak
        guard !token.isEmpty else {
            throw Failure(.usage, "\(file == "-" ? "standard input" : file) contains no token")
        }
        return words(name) + [ByteBuffer(bytes: token)]
    }
}

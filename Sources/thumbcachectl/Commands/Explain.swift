import ArgumentParser
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

struct Explain: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Describe the result of get without performing it.",
        discussion: """
            Says whether an image is held, since when and until when it is fresh, which upstream of the origin is \
            requested next, and what prevents a download: a response that is remembered, an open circuit breaker, a missing \
            login. Nothing is downloaded, and nothing counts as a use. URLs are shown without path and query.

            Example:
              thumbcachectl explain alice bob@example.org --size 64
            """)

    @Argument(help: "The user.")
    var user: String

    @Argument(help: "The profile, such as a contact's address.")
    var profile: String

    @OptionGroup var size: SizeOptions

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws { try thumbcachectl.validate(user: user) }

    func run(in environment: Environment) async throws(Failure) {
        let reply = try await environment.reply(to: words("EXPLAIN", user, profile) + size.words, daemon)
        if output.json { return try environment.show(reply, output) }
        guard let text = ExplanationText(reply, user, profile) else {
            throw Failure(.unreachable, "the daemon's reply to EXPLAIN is malformed")
        }
        try write(Array(text.lines.map { $0 + "\n" }.joined().utf8))
    }
}

extension ExplanationText {
    fileprivate init?(_ reply: Value, _ user: String, _ profile: String) {
        do throws(ThumbcacheError) {
            // Other names would have to be quoted for a shell.
            let isPlain = [user, profile].allSatisfy { $0.wholeMatch(of: /[A-Za-z0-9][A-Za-z0-9@%+=:,.\/_-]*/) != nil }
            let purge = isPlain ? "thumbcachectl purge \(user) \(profile)" : "a purge of the profile"
            self.init(explanation: try ImageExplanation(reply), purge: purge)
        } catch {
            return nil
        }
    }
}

extension Environment {
    /// Seconds that a daemon which has just replied may take to explain its reply.
    private static let explanationTimeout = 5

    /// Why GET returned null, in one line.
    /// - Parameter isCached: whether the GET was not allowed to wait for a download.
    func reason(
        _ user: String, _ profile: String, _ size: [ByteBuffer], isCached: Bool, _ options: DaemonOptions
    ) async -> String {
        let usual = isCached ? "none is cached" : "neither the cache nor the origin has one"
        do throws(Failure) {
            let request = words("EXPLAIN", user, profile) + size
            let reply = try await reply(to: request, options, within: Self.explanationTimeout)
            guard let text = ExplanationText(reply, user, profile),
                text.explanation.action == ImageExplanation.Action.none || text.explanation.action == .fail
            else { return usual }
            return isCached ? "\(usual), and \(text.summary)" : text.summary
        } catch {
            // For example a daemon of a version without EXPLAIN.
            return usual
        }
    }
}

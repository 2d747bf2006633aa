import ArgumentParser
import Glibc
@_spi(Wire) import Thumbcache

struct Watch: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print events of your users' caches until interrupted.",
        discussion: """
            Prints one line per event, with the time: login, logout, purge, and update when the image of a profile \
            changes. Without a user, or with '*', prints events of every user of your uid. If the connection is \
            lost, the command reconnects; events between 'lost' and 'watching' are missed.

            With --json, prints one object per line with time, event, user, profile and epoch. The events lost and \
            watching report the connection.

            Examples:
              thumbcachectl watch
              thumbcachectl watch alice@example.org --json
            """)

    @Argument(help: "Users to watch; all by default.")
    var users: [String] = []

    @Option(help: ArgumentHelp("Exit after this number of events.", valueName: "n"))
    var count: Int?

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate("count", count, in: 1...Int.max, "events")
    }

    func run(in environment: Environment) async throws(Failure) {
        let ids = users.contains("*") ? [] : users.map { ThumbcacheID($0) }
        try await environment.withDaemon(daemon, within: 10) { daemon throws(Failure) in
            // A subscription retries forever. This request reports an invalid socket.
            try await daemon.perform { client throws(ThumbcacheError) in try await client.ping() }
            var left = count ?? .max
            for await event in daemon.client.events(of: ids) {
                let line = EventLine(event, at: .now)
                guard try writeUnlessClosed((output.json ? line.json : line.text) + "\n") else { return }
                if line.isEvent { left -= 1 }
                if left == 0 { return }
            }
        }
    }
}

struct EventLine {
    private let moment: Times.Moment
    private let event: ThumbcacheEvent

    init(_ event: ThumbcacheEvent, at moment: Times.Moment) { (self.event, self.moment) = (event, moment) }

    /// Whether it is an event of a cache, not of the connection.
    var isEvent: Bool { event != .subscribed && event != .gap }

    var text: String {
        func shown(_ id: ThumbcacheID) -> String { PlainText.escape(id.bytes) }
        let what =
            switch event {
            case .subscribed: "watching"
            case .gap: "lost (connection closed or too many events); events may be missed"
            case .login(let user, _): "login \(shown(user))"
            case .logout(let user, _): "logout \(shown(user))"
            case .purge(let user, let profile?, _): "purge \(shown(user)) \(shown(profile))"
            case .purge(let user, nil, _): "purge \(shown(user))"
            case .update(let user, let profile, _): "update \(shown(user)) \(shown(profile))"
            }
        return "\(moment.local) \(what)"
    }

    var json: String {
        func members(
            _ name: String, _ user: ThumbcacheID? = nil, _ profile: ThumbcacheID? = nil, _ epoch: Int? = nil
        ) -> String {
            JSON.object(
                [("time", JSON.string(moment.utc)), ("event", .string(name))]
                    + (user.map { [("user", JSON.id($0))] } ?? []) + (profile.map { [("profile", JSON.id($0))] } ?? [])
                    + (epoch.map { [("epoch", JSON.integer($0))] } ?? [])
            ).text
        }
        return switch event {
        case .subscribed: members("watching")
        case .gap: members("lost")
        case .login(let user, let epoch): members("login", user, nil, epoch)
        case .logout(let user, let epoch): members("logout", user, nil, epoch)
        case .purge(let user, let profile, let epoch): members("purge", user, profile, epoch)
        case .update(let user, let profile, let epoch): members("update", user, profile, epoch)
        }
    }
}

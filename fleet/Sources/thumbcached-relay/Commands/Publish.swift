import ArgumentParser
import Fleet
import NIOCore
@_spi(Wire) import Thumbcache

struct Logout: FleetCommand {
    static let configuration = CommandConfiguration(
        abstract: "Log a user out on every host.",
        discussion: """
            Returns 0 when every host that is live has done it: nothing of the user can be read there any more, not \
            even after a power cut. A host that is away does it when it is back.

            Example:
              thumbcachectl fleet logout alice --wait 10
            """)

    @Argument(help: "The account that logs out.")
    var user: String?

    @Flag(help: "Log everybody out, on every host.")
    var all = false

    @Option(help: ArgumentHelp("End this session only.", valueName: "id"))
    var session: String?

    @OptionGroup var options: PublishOptions
    @OptionGroup var file: ConfigurationOption

    func validate() throws {
        try fleetValidate(user: user, all: all)
        if all, session != nil { throw ValidationError("--session is of a user: it excludes --all") }
    }

    func run(in environment: [String: String]) async throws -> CInt {
        let order = user.map { Order.logOut(ThumbcacheID($0), session: session.map { ThumbcacheID($0) }) }
        return try await options.publish(order ?? .logOutEverybody, file, environment)
    }
}

struct Purge: FleetCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove a user's images, or those of some profiles, on every host.",
        discussion: "The user stays logged in. Returns as logout does.")

    @Argument(help: "The account whose images go.")
    var user: String?

    @Argument(help: "The people whose pictures go; all without any.")
    var profiles: [String] = []

    @Flag(help: "Purge everybody, on every host.")
    var all = false

    @OptionGroup var options: PublishOptions
    @OptionGroup var file: ConfigurationOption

    func validate() throws {
        try fleetValidate(user: user, all: all)
        guard profiles.count <= FleetEntry.mostProfiles else {
            throw ValidationError("more than \(FleetEntry.mostProfiles) profiles: purge the whole user, or some")
        }
    }

    func run(in environment: [String: String]) async throws -> CInt {
        let order = user.map { Order.purge(ThumbcacheID($0), profiles: profiles.map { ThumbcacheID($0) }) }
        return try await options.publish(order ?? .purgeEverybody, file, environment)
    }
}

private func fleetValidate(user: String?, all: Bool) throws {
    switch (user, all) {
    case (nil, false): throw ValidationError("name a user, or everybody with --all")
    case (_?, true): throw ValidationError("--all is everybody: no user can be named beside it")
    case ("*", _): throw ValidationError("'*' is no user; for everybody there is --all")
    default: break
    }
}

struct PublishOptions: ParsableArguments {
    @Option(help: ArgumentHelp("How long the hosts may take, in seconds.", valueName: "seconds"))
    var wait = 5

    @Option(
        help: ArgumentHelp(
            "Replicas that must have it within that time. By default one, where the server has any.",
            valueName: "count"))
    var replicas: Int?

    @Option(
        help: ArgumentHelp("A host that was not seen for so long is away, and not waited for.", valueName: "seconds"))
    var live = 30

    func validate() throws {
        guard 0...86_400 ~= wait else { throw ValidationError("--wait \(wait) is out of range: 0 to 86400 seconds") }
        guard 1...86_400 ~= live else { throw ValidationError("--live \(live) is out of range: 1 to 86400 seconds") }
        if let replicas, !(0...100 ~= replicas) {
            throw ValidationError("--replicas \(replicas) is out of range: 0 to 100")
        }
    }

    /// Publishes, waits, and prints who has done it.
    func publish(_ order: Order, _ file: ConfigurationOption, _ environment: [String: String]) async throws -> CInt {
        do throws(EntryError) {
            try FleetEntry.check(order)
        } catch {
            throw CommandFailure(CommandFailure.usage, "the order \(error)")
        }
        return try await file.withStream(environment) { stream, configuration in
            let deadline = ContinuousClock.now + .seconds(wait)
            let publication = try await stream.publish(
                order, keep: configuration.keep, replicas: replicas, within: .seconds(wait))
            if let loss = publication.loss { throw CommandFailure(CommandFailure.refused, loss) }
            let (entry, time) = (publication.id, publication.time)
            var hosts = try await stream.fleet(entry, publishedAt: time)
            while hosts.contains(where: { $0.isLive(within: live) && !$0.hasDone(entry) }), .now < deadline {
                try await Task.sleep(for: .milliseconds(20))
                hosts = try await stream.fleet(entry, publishedAt: time)
            }
            print("published \(entry)")
            FleetTable(hosts, live: live) { $0.hasDone(entry) ? "done" : "owed" }.show()
            let alive = hosts.filter { $0.isLive(within: live) }
            return !alive.isEmpty && alive.allSatisfy { $0.hasDone(entry) } ? 0 : CommandFailure.refused
        }
    }
}

import ArgumentParser
import Fleet
import NIOCore
@_spi(Wire) import Thumbcache

struct Logout: FleetSubcommand {
    static let configuration = CommandConfiguration(
        abstract: "Log a user out on every host.",
        discussion: """
            Exit status 0 means that every host in the table has logged the user out, durably: the user's cached \
            images are unreadable there. A host that is away does so when it returns; until then the status is 1, \
            unless --live-only excludes it or an administrator has removed it with forget.

            Example:
              thumbcachectl fleet logout alice --wait 10
            """)

    @Argument(help: "The user to log out.")
    var user: String?

    @Flag(help: "Log out every user, on every host.")
    var all = false

    @Option(help: ArgumentHelp("End this session only.", valueName: "id"))
    var session: String?

    @OptionGroup var options: PublishOptions
    @OptionGroup var file: ConfigurationOption

    func validate() throws {
        try fleetValidate(user: user, all: all)
        if all, session != nil {
            throw ValidationError("--session and --all exclude each other: a session belongs to one user")
        }
    }

    func run(in environment: [String: String]) async throws -> CInt {
        let command = user.map { FleetCommand.logOut(ThumbcacheID($0), session: session.map { ThumbcacheID($0) }) }
        return try await options.publish(command ?? .logOutAll, file, environment)
    }
}

struct Purge: FleetSubcommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove a user's images, or those of some profiles, on every host.",
        discussion: "The user stays logged in. The exit status is that of logout.")

    @Argument(help: "The user whose images are removed.")
    var user: String?

    @Argument(help: "The profiles whose images are removed; default: all of the user's.")
    var profiles: [String] = []

    @Flag(help: "Remove the images of every user, on every host.")
    var all = false

    @OptionGroup var options: PublishOptions
    @OptionGroup var file: ConfigurationOption

    func validate() throws {
        try fleetValidate(user: user, all: all)
        guard profiles.count <= FleetEntry.mostProfiles else {
            throw ValidationError(
                "\(profiles.count) profiles are more than the \(FleetEntry.mostProfiles) of one purge; name fewer, or none "
                    + "to remove all of the user's images")
        }
    }

    func run(in environment: [String: String]) async throws -> CInt {
        let command = user.map { FleetCommand.purge(ThumbcacheID($0), profiles: profiles.map { ThumbcacheID($0) }) }
        return try await options.publish(command ?? .purgeAll, file, environment)
    }
}

private func fleetValidate(user: String?, all: Bool) throws {
    switch (user, all) {
    case (nil, false): throw ValidationError("no user given; name one, or use --all for every user")
    case (_?, true): throw ValidationError("--all means every user, so no user can be named with it")
    case ("*", _): throw ValidationError("'*' is not a user; use --all for every user")
    default: break
    }
}

func validateLive(_ seconds: Int) throws {
    guard 1...86_400 ~= seconds else { throw ValidationError("--live \(seconds) is out of range: 1 to 86400 seconds") }
}

struct PublishOptions: ParsableArguments {
    @Option(help: ArgumentHelp("How long to wait for the hosts.", valueName: "seconds"))
    var wait = 5

    @Option(
        help: ArgumentHelp(
            "How many replicas must have the entry within that time; by default one if the server has any.",
            valueName: "count"))
    var replicas: Int?

    @Option(
        help: ArgumentHelp(
            "Time without a heartbeat after which a host is away; must exceed the relays' heartbeat.",
            valueName: "seconds"))
    var live = 30

    @Flag(help: "Ignore hosts that are away in the exit status.")
    var liveOnly = false

    func validate() throws {
        guard 0...86_400 ~= wait else { throw ValidationError("--wait \(wait) is out of range: 0 to 86400 seconds") }
        try validateLive(live)
        if let replicas, !(0...100 ~= replicas) {
            throw ValidationError("--replicas \(replicas) is out of range: 0 to 100")
        }
    }

    /// Publishes a command, waits for the hosts, and prints their states.
    func publish(_ command: FleetCommand, _ file: ConfigurationOption, _ environment: [String: String]) async throws
        -> CInt
    {
        do throws(EntryError) {
            try FleetEntry.check(command)
        } catch {
            throw CommandFailure(CommandFailure.usage, "the request \(error)")
        }
        return try await file.withStream(environment) { stream, configuration in
            let deadline = ContinuousClock.now + .seconds(wait)
            let publication = try await stream.publish(
                command, keep: configuration.keep, replicas: replicas, within: .seconds(wait))
            if let loss = publication.loss { throw CommandFailure(CommandFailure.refused, loss) }
            let entry = publication.id
            while true {
                let fleet = FleetView(try await stream.hostTable(), publishedAt: publication.time)
                let completion = Completion(fleet, entry, window: live, liveOnly: liveOnly)
                if case .pending = completion, .now < deadline {
                    try await Task.sleep(for: .milliseconds(20))
                    continue
                }
                print("published \(entry)")
                FleetTable(fleet.hosts, live: live) { $0.hasProcessed(entry) ? "done" : "pending" }.show()
                switch completion {
                case .done: return 0
                case .pending(let reason), .away(let reason): throw CommandFailure(CommandFailure.refused, reason)
                }
            }
        }
    }
}

import ArgumentParser
import Glibc
import LinuxSupport
import NIOCore
import Synchronization
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

struct Warm: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have images downloaded before anybody asks for them.",
        discussion: """
            Those that are missing or stale are downloaded in the background, a few at a time, so that whoever waits \
            for an image goes before. It waits until all are done, shows how far it is, and prints how many images \
            there are now, how many profiles have none, and how many failed. Exit status 1 where some failed. With \
            --no-wait it ends as soon as all wait in the daemon's queue. To stop it stops nothing in the daemon.

            Examples:
              thumbcachectl warm alice bob@example.org carol@example.org --size 64
              contacts list | thumbcachectl warm alice -
            """)

    @Argument(help: "The logged-in account.")
    var user: String

    @Argument(help: "The persons whose pictures they are; '-' reads them from standard input.")
    var profiles: [String] = []

    @Option(help: ArgumentHelp("Read profiles from this file, one a line.", valueName: "file"), completion: .file())
    var from: String?

    @OptionGroup var size: SizeOptions

    @Flag(help: "Do not wait for the downloads.")
    var noWait = false

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    /// Profiles of one request: the daemon takes 1,024 arguments, among which are the command and its options.
    static let batch = 500
    static let largestList = 64 << 20

    func validate() throws {
        try thumbcachectl.validate(user: user)
        if profiles.isEmpty, from == nil { throw ValidationError("name profiles, a list with --from, or '-'") }
        if !profiles.isEmpty, from != nil { throw ValidationError("--from and profiles exclude each other") }
    }

    func run(in environment: Environment) async throws(Failure) {
        let ids = try wanted()
        let (user, size) = (ThumbcacheID(user), size.picture)
        let counts = try await environment.withDaemon(daemon) { daemon throws(Failure) in
            let progress = WarmProgress(Set(ids))
            let terminal = Terminal(STDERR_FILENO, variable: environment.variable)
            let bar = ProgressLine(total: ids.count, on: terminal, isSilent: output.json)
            let follower = Task { for await event in daemon.client.events(of: [user]) { progress.take(event) } }
            defer { follower.cancel() }
            if !noWait { await progress.waitForSubscription() }
            var queued = 0
            for start in stride(from: 0, to: ids.count, by: Self.batch) {
                let some = Array(ids[start...].prefix(Self.batch))
                queued += try await queue(some, user, daemon, progress, bar)
            }
            if noWait { return Value.map([.simpleString("queued"), .integer(queued)]) }
            await progress.waitUntilQuiet(queued, bar)
            let outcome = try await look(at: ids, user, size, daemon, bar, environment)
            bar.end()
            return outcome
        }
        try environment.show(counts, output)
        if let failed = counts["failed"]?.number, failed > 0 {
            throw Failure(.refused, "\(failed) of \(ids.count) could not be downloaded")
        }
    }

    /// Each once, in the order of the list.
    private func wanted() throws(Failure) -> [ThumbcacheID] {
        var lines = profiles.map { ArraySlice($0.utf8) }
        let file = from ?? (profiles == ["-"] ? "-" : nil)
        if let file {
            let bytes = try readFile(file, what: "a list of profiles", limit: Self.largestList)
            lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { line in
                line.last == UInt8(ascii: "\r") ? line.dropLast() : line
            }
        }
        var seen: Set<ThumbcacheID> = []
        var ids: [ThumbcacheID] = []
        for (index, line) in lines.enumerated() {
            if line.isEmpty, file != nil { continue }
            guard (1...CommandLimits().id).contains(line.count) else {
                throw Failure(
                    .usage, "profile \(index + 1) has \(line.count) bytes; 1 to \(CommandLimits().id) can be")
            }
            let id = ThumbcacheID(bytes: line)
            if seen.insert(id).inserted { ids.append(id) }
        }
        guard !ids.isEmpty else { throw Failure(.usage, "the list holds no profile") }
        return ids
    }

    /// Puts some in the daemon's queue. Where that is full it waits until some have come.
    private func queue(
        _ ids: [ThumbcacheID], _ user: ThumbcacheID, _ daemon: ConnectedDaemon, _ progress: WarmProgress,
        _ bar: ProgressLine
    ) async throws(Failure) -> Int {
        while true {
            let before = progress.changed
            do throws(ThumbcacheError) {
                return try await daemon.client.warm(user, ids, size: size.picture)
            } catch .server(.busy, let message) {
                await progress.pause()
                bar.show(progress.changed)
                guard progress.isMoving(since: before) else {
                    throw Failure(.server(.busy, message: message), path: daemon.path, timeout: daemon.timeout)
                }
            } catch {
                throw Failure(error, path: daemon.path, timeout: daemon.timeout)
            }
        }
    }

    /// What has become of each. An event says that something has changed, not what; and there is none of a failure.
    private func look(
        at ids: [ThumbcacheID], _ user: ThumbcacheID, _ size: PictureSize?, _ daemon: ConnectedDaemon,
        _ bar: ProgressLine,
        _ environment: Environment
    ) async throws(Failure) -> Value {
        var (images, none, failed) = (0, 0, 0)
        for (index, id) in ids.enumerated() {
            do throws(ThumbcacheError) {
                let isFresh = try await daemon.client.stat(user, id, size: size)?.state == .fresh
                // Waits for a download that is under way, and has an answer at once where one has failed.
                let isThere = try await isFresh ? true : daemon.client.get(user, id, size: size) != nil
                if isThere { images += 1 } else { none += 1 }
            } catch .server(.noLogin, let message) {
                throw Failure(.refused, PlainText.escape("NOLOGIN \(message)"))
            } catch .server(let code, let message) {
                failed += 1
                bar.clear()
                let said = PlainText.escape("\(code) \(message)")
                environment.complain("thumbcachectl: \(PlainText.escape(id.bytes)): \(said)", .error)
            } catch {
                throw Failure(error, path: daemon.path, timeout: daemon.timeout)
            }
            bar.show(index + 1)
        }
        return .map([
            .simpleString("images"), .integer(images), .simpleString("none"), .integer(none),
            .simpleString("failed"), .integer(failed),
        ])
    }
}

import ArgumentParser
import Glibc
import LinuxSupport
import NIOCore
import Synchronization
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

struct Warm: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Download images before they are requested.",
        discussion: """
            Missing and stale images are downloaded in the background, a few at a time, after downloads that clients \
            wait for. The command shows its progress, waits for all downloads, and prints how many profiles have an \
            image, how many have none, and how many failed. The exit status is 1 if some failed. With --no-wait, it \
            exits when all are queued in the daemon. Interrupting the command does not cancel queued downloads.

            Examples:
              thumbcachectl warm alice bob@example.org carol@example.org --size 64
              contacts list | thumbcachectl warm alice -
            """)

    @Argument(help: "The logged-in user.")
    var user: String

    @Argument(help: "The profiles; '-' reads them from standard input.")
    var profiles: [String] = []

    @Option(help: ArgumentHelp("Read profiles from this file, one per line.", valueName: "file"), completion: .file())
    var from: String?

    @OptionGroup var size: SizeOptions

    @Flag(help: "Do not wait for the downloads.")
    var noWait = false

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    /// Profiles per request. The daemon accepts 1,024 arguments, including the command and its options.
    static let batch = 500
    static let largestList = 64 << 20

    func validate() throws {
        try thumbcachectl.validate(user: user)
        if profiles.isEmpty, from == nil {
            throw ValidationError("missing profiles; name some, a file with --from, or '-'")
        }
        if !profiles.isEmpty, from != nil { throw ValidationError("--from and profiles exclude each other") }
    }

    func run(in environment: Environment) async throws(Failure) {
        let ids = try requestedProfiles()
        let (user, size) = (ThumbcacheID(user), size.imageSize)
        let counts = try await environment.withDaemon(daemon) { daemon throws(Failure) in
            let progress = WarmProgress(Set(ids))
            let terminal = Terminal(STDERR_FILENO, variable: environment.variable)
            let bar = ProgressLine(total: ids.count, on: terminal, isSilent: output.json)
            let follower = Task { for await event in daemon.client.events(of: [user]) { progress.record(event) } }
            defer { follower.cancel() }
            if !noWait { await progress.waitForSubscription() }
            var queued = 0
            for start in stride(from: 0, to: ids.count, by: Self.batch) {
                let some = Array(ids[start...].prefix(Self.batch))
                queued += try await queue(some, user, daemon, progress, bar)
            }
            if noWait { return Value.map([.simpleString("queued"), .integer(queued)]) }
            await progress.waitUntilQuiet(queued, bar)
            let outcome = try await outcome(of: ids, user, size, daemon, bar, environment)
            bar.end()
            return outcome
        }
        try environment.show(counts, output)
        if let failed = counts["failed"]?.number, failed > 0 {
            throw Failure(.refused, "\(failed) of \(ids.count) downloads failed")
        }
    }

    /// The profiles in the order of the list, without duplicates.
    private func requestedProfiles() throws(Failure) -> [ThumbcacheID] {
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
            guard (1...RequestLimits().id).contains(line.count) else {
                throw Failure(
                    .usage, "profile \(index + 1) has \(line.count) bytes; expected 1 to \(RequestLimits().id)")
            }
            let id = ThumbcacheID(bytes: line)
            if seen.insert(id).inserted { ids.append(id) }
        }
        guard !ids.isEmpty else { throw Failure(.usage, "the list contains no profile") }
        return ids
    }

    /// Retries while the daemon's queue is full and downloads make progress.
    private func queue(
        _ ids: [ThumbcacheID], _ user: ThumbcacheID, _ daemon: ConnectedDaemon, _ progress: WarmProgress,
        _ bar: ProgressLine
    ) async throws(Failure) -> Int {
        while true {
            let before = progress.changed
            do throws(ThumbcacheError) {
                return try await daemon.client.warm(user, ids, size: size.imageSize)
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

    /// Counts the results with requests: events do not tell the new state, and a failure causes none.
    private func outcome(
        of ids: [ThumbcacheID], _ user: ThumbcacheID, _ size: ImageSize?, _ daemon: ConnectedDaemon,
        _ bar: ProgressLine, _ environment: Environment
    ) async throws(Failure) -> Value {
        var (images, none, failed) = (0, 0, 0)
        for (index, id) in ids.enumerated() {
            do throws(ThumbcacheError) {
                let isFresh = try await daemon.client.stat(user, id, size: size)?.state == .fresh
                // GET waits for a download in flight, and returns at once after a failed one.
                let isThere = try await isFresh ? true : daemon.client.get(user, id, size: size) != nil
                if isThere { images += 1 } else { none += 1 }
            } catch .server(.noLogin, let message) {
                throw Failure(.refused, PlainText.escape("NOLOGIN \(message)"))
            } catch .server(let code, let message) {
                failed += 1
                bar.clear()
                let said = PlainText.escape("\(code) \(message)")
                environment.report("thumbcachectl: \(PlainText.escape(id.bytes)): \(said)", .error)
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

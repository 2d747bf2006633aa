import ArgumentParser
import Glibc
import NIOCore
import ThumbcacheProtocol

struct Get: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Return an image: from the cache, or else downloaded.",
        discussion: """
            The image goes to the file named with --output, which is replaced as a whole, or else to standard output, \
            but never to a terminal. With --meta or --json standard output gets a description instead: digest, type, \
            length, width, height, age, ttl, state, source, epoch and rendered (of which \
            picture it was made).

            Where there is no image the exit status is 4.

            Examples:
              thumbcachectl get alice bob@example.org --output bob.png
              thumbcachectl get alice bob@example.org --size 64 | display -
              thumbcachectl get alice bob@example.org --size 96 --fit contain --format png -o bob.png
              thumbcachectl get alice bob@example.org --cached --meta
            """)

    @Argument(help: "The logged-in account.")
    var user: String

    @Argument(help: "The person whose picture it is.")
    var profile: String

    @OptionGroup var size: SizeOptions

    @Option(help: ArgumentHelp("Download from here; must be under an 'allow' entry of the origin.", valueName: "url"))
    var url: String?

    @Option(
        help: ArgumentHelp(
            "Time to wait for a download, up to 10m: seconds, or with a unit; else as long as the origin may take.",
            valueName: "time"),
        transform: milliseconds)
    var wait: Int?

    @Flag(help: "Do not download: what is held, fresh or stale, or nothing.")
    var cached = false

    @Flag(help: "The same, and download what is missing or stale behind it.")
    var noWait = false

    @Flag(help: "Print a description of the image.")
    var meta = false

    @Option(
        name: .shortAndLong, help: ArgumentHelp("Write the image to this file.", valueName: "file"),
        completion: .file())
    var output: String?

    @OptionGroup var format: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user)
        try thumbcachectl.validate("wait", wait, in: CommandLimits.wait, "milliseconds")
        if cached && noWait { throw ValidationError("--cached and --no-wait exclude each other") }
        if output?.isEmpty == true { throw ValidationError("--output is empty; name a file") }
    }

    func run(in environment: Environment) async throws(Failure) {
        let wantsMeta = meta || format.json
        let printsImage = output == nil && !wantsMeta
        // Before anything is downloaded for nothing.
        if printsImage, isTerminal(STDOUT_FILENO) {
            throw Failure(.usage, "an image is not written to a terminal; name a file with --output, or use a pipe")
        }
        let options =
            size.words + option("URL", url) + option("WAIT", wait)
            + flag("CACHED", cached) + flag("NOWAIT", noWait) + flag("META", wantsMeta)
        let reply = try await environment.ask(words("GET", user, profile) + options, daemon)
        guard let image = (wantsMeta ? reply[MetaKey.image.rawValue] : reply)?.bytes else {
            let reason = cached || noWait ? "none is held" : "neither the cache nor the origin has one"
            throw try environment.noImage(format, "there is no such image: \(reason)")
        }
        let bytes = Array(image.readableBytesView)
        if let output { try writeFile(bytes, to: output) }
        if printsImage { try write(bytes) }
        guard wantsMeta else { return }
        let description = (reply.entries ?? []).filter { $0.key.text != MetaKey.image.rawValue }
        try environment.show(.map(description.flatMap { [$0.key, $0.value] }), format)
    }
}

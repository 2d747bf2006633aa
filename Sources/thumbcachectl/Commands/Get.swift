import ArgumentParser
import Glibc
import NIOCore
import ThumbcacheProtocol

struct Get: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Return an image from the cache or the origin.",
        discussion: """
            The image is written to the file of --output, which is replaced atomically, or else to standard output, \
            but never to a terminal. With --meta or --json, a description is printed instead: digest, type, length, \
            width, height, age, ttl, state, source, epoch and rendered (the digest of the image that this one was \
            resized from).

            The exit status is 4 if there is no image.

            Examples:
              thumbcachectl get alice bob@example.org --output bob.png
              thumbcachectl get alice bob@example.org --size 64 | display -
              thumbcachectl get alice bob@example.org --size 96 --fit contain --format png -o bob.png
              thumbcachectl get alice bob@example.org --cached --meta
            """)

    @Argument(help: "The logged-in user.")
    var user: String

    @Argument(help: "The profile, such as a contact's address.")
    var profile: String

    @OptionGroup var size: SizeOptions

    @Option(
        help: ArgumentHelp("Download from this URL; it must match an 'allow' entry of the origin.", valueName: "url"))
    var url: String?

    @Option(
        help: ArgumentHelp(
            "Time to wait for a download, at most 10m: seconds, or with a unit. Default: the origin's timeout.",
            valueName: "time"),
        transform: milliseconds)
    var wait: Int?

    @Flag(help: "Do not download; return the cached image, fresh or stale, if any.")
    var cached = false

    @Flag(help: "Return immediately as --cached does; download a missing or stale image in the background.")
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
        // Checked before the request, which could cause a download.
        if printsImage, isTerminal(STDOUT_FILENO) {
            throw Failure(.usage, "an image is not written to a terminal; name a file with --output, or use a pipe")
        }
        let options =
            size.words + option("URL", url) + option("WAIT", wait)
            + flag("CACHED", cached) + flag("NOWAIT", noWait) + flag("META", wantsMeta)
        let reply = try await environment.reply(to: words("GET", user, profile) + options, daemon)
        guard let image = (wantsMeta ? reply[MetaKey.image.rawValue] : reply)?.bytes else {
            let reason =
                url == nil
                ? await environment.reason(user, profile, size.words, isCached: cached || noWait, daemon)
                : "neither the cache nor this URL has one"
            throw try environment.noImage(format, "no such image: \(reason)")
        }
        let bytes = Array(image.readableBytesView)
        if let output { try writeFile(bytes, to: output) }
        if printsImage { try write(bytes) }
        guard wantsMeta else { return }
        let description = (reply.entries ?? []).filter { $0.key.text != MetaKey.image.rawValue }
        try environment.show(.map(description.flatMap { [$0.key, $0.value] }), format)
    }
}

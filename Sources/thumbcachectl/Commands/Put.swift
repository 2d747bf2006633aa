import ArgumentParser
import NIOCore
import ThumbcacheProtocol

struct Put: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Store an image that you have.",
        discussion: """
            PNG, JPEG, GIF, WebP or AVIF, told by the bytes. Without --ttl it stays fresh until it is purged, put \
            again or evicted, and the origin is not asked for it.

            Example:
              thumbcachectl put alice bob@example.org bob.jpg --size 128
            """)

    @Argument(help: "The logged-in account.")
    var user: String

    @Argument(help: "The person whose picture it is.")
    var profile: String

    @Argument(help: "The image; '-' for standard input.", completion: .file())
    var file: String

    @Option(help: ArgumentHelp("The size it is stored for, in pixels, 1 to 4096.", valueName: "px"))
    var size: Int?

    @Option(
        help: ArgumentHelp(
            "Time until it is stale and the origin is asked: seconds, or with a unit as in 1d.", valueName: "time"),
        transform: seconds)
    var ttl: Int?

    @OptionGroup var daemon: DaemonOptions

    /// The most that any daemon can be configured to accept.
    static let largestImage = 1 << 30

    func validate() throws {
        try thumbcachectl.validate(user: user)
        try thumbcachectl.validate("size", size, in: CommandLimits.size, "pixels")
        try thumbcachectl.validate("ttl", ttl, in: CommandLimits.ttl, "seconds")
    }

    func run(in environment: Environment) async throws(Failure) {
        let image = try readFile(file, what: "an image", limit: Self.largestImage)
        let request = words("PUT", user, profile) + [ByteBuffer(bytes: image)]
        _ = try await environment.ask(request + option("SIZE", size) + option("TTL", ttl), daemon)
    }
}

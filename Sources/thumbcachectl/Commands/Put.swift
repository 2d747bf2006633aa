import ArgumentParser
import NIOCore
import ThumbcacheProtocol

struct Put: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Store an image from a file.",
        discussion: """
            Accepts PNG, JPEG, GIF, WebP and AVIF, detected from the content. Without --ttl, the image stays fresh \
            until it is purged, replaced or evicted.

            Example:
              thumbcachectl put alice bob@example.org bob.jpg --size 128
            """)

    @Argument(help: "The logged-in user.")
    var user: String

    @Argument(help: "The profile, such as a contact's address.")
    var profile: String

    @Argument(help: "The image file; '-' for standard input.", completion: .file())
    var file: String

    @Option(help: ArgumentHelp("The size to store it under, in pixels, 1 to 4096.", valueName: "px"))
    var size: Int?

    @Option(
        help: ArgumentHelp(
            "Time until the image is stale: seconds, or with a unit as in 1d.", valueName: "time"),
        transform: seconds)
    var ttl: Int?

    @OptionGroup var daemon: DaemonOptions

    /// In bytes; the highest limit that the daemon can be configured with.
    static let largestImage = 1 << 30

    func validate() throws {
        try thumbcachectl.validate(user: user)
        try thumbcachectl.validate("size", size, in: CommandLimits.size, "pixels")
        try thumbcachectl.validate("ttl", ttl, in: CommandLimits.ttl, "seconds")
    }

    func run(in environment: Environment) async throws(Failure) {
        let image = try readFile(file, what: "an image", limit: Self.largestImage)
        let request = words("PUT", user, profile) + [ByteBuffer(bytes: image)]
        _ = try await environment.reply(to: request + option("SIZE", size) + option("TTL", ttl), daemon)
    }
}

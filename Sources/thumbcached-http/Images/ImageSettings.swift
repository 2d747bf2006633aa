/// The section `images` of the configuration; docs/http.md documents every key.
struct ImageSettings: Equatable, Sendable {
    /// nil for no listener, unless systemd passes a socket.
    var listen: ListenAddress?
    var hosts: [HostName] = []
    /// The user of `/avatar/HASH`; empty for none.
    var user = ""
    /// Whether the program logs the user in at its start.
    var logIn = false
    /// The origin for this login; empty for the daemon's default.
    var origin = ""
    var perUser = PerUser.off
    /// The path of the keys; empty for the credential of systemd.
    var signingKey = ""
    var usualDefault = DefaultImage.Word.person
    var defaultURLs: [URLPrefix] = []
    /// Pixels.
    var sizeLimit = 2_048
    /// How long a request may wait for the origin, in milliseconds.
    var wait: Int64 = 8_000
    /// The longest time that a browser uses an image of `/avatar/` without a request, in seconds.
    var longestAge: Int64 = 3_600
    /// The same for images of `/u/`.
    var longestUserAge: Int64 = 0
    var embedding = Response.Embedding.sameSite
    var connections = 128
    /// Bytes of all images that are being sent.
    var memory = 64 << 20

    /// Whether `/u/USER/avatar/HASH` is served.
    enum PerUser: String, Sendable, CaseIterable {
        case off
        /// To everyone who can connect.
        case open
        /// With a valid signature.
        case signed
    }

    /// Whether any path leads to an image.
    var servesImages: Bool { !user.isEmpty || perUser != .off }
}

import ArgumentParser
import Glibc
import NIOCore
import ThumbcacheProtocol

struct Show: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Draw an image in the terminal.",
        discussion: """
            Gets an image as get does, and draws it with kitty's graphics protocol if the terminal supports it, or else \
            with half-block characters in the terminal's colors. In a pipe or with NO_COLOR, it is drawn in ASCII. \
            The image is decoded by a confined process; the terminal receives only pixel colors.

            The exit status is 4 if there is no image.

            Example:
              thumbcachectl show alice bob@example.org --columns 20
            """)

    @Argument(help: "The logged-in user.")
    var user: String

    @Argument(help: "The profile, such as a contact's address.")
    var profile: String

    @Option(help: ArgumentHelp("Request this size, in pixels, 1 to 4096.", valueName: "px"))
    var size: Int?

    @Option(help: ArgumentHelp("Maximum width in columns, 1 to 1000.", valueName: "n"))
    var columns = 40

    @Flag(help: "Draw with characters, even if the terminal supports graphics.")
    var cells = false

    @Flag(help: "Do not download; use the cached image, fresh or stale, if any.")
    var cached = false

    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user)
        try thumbcachectl.validate("size", size, in: CommandLimits.size, "pixels")
        try thumbcachectl.validate("columns", columns, in: 1...1_000, "columns")
    }

    func run(in environment: Environment) async throws(Failure) {
        // Checked before the request, which could cause a download.
        let decoder = try ImageDecoder()
        let request = words("GET", user, profile) + option("SIZE", size) + flag("CACHED", cached)
        guard let image = try await environment.reply(to: request, daemon).bytes else {
            let reason = await environment.reason(user, profile, option("SIZE", size), isCached: cached, daemon)
            throw Failure(.noImage, "no such image: \(reason)")
        }
        let terminal = Terminal(STDOUT_FILENO, variable: environment.variable)
        let room = terminal.isTerminal ? terminal.size : .standard
        // Leaves a line for the prompt.
        let (width, rows) = (min(columns, room.columns), max(1, room.rows - 1))
        if !cells, terminal.hasColor, KittyGraphics.isSupported(kind: environment.variable("TERM") ?? "") {
            let cell = terminal.cell
            let side = min(width * cell.width, rows * cell.height, 1_024)
            try write(Array((KittyGraphics.text(try decoder.pixels(image, side: side)) + "\n").utf8))
        } else {
            let pixels = try decoder.pixels(image, side: min(width, 2 * rows))
            let lines = CellDrawing(pixels: pixels, colors: terminal.colors).lines
            try write(Array(lines.map { $0 + "\n" }.joined().utf8))
        }
    }
}

import ArgumentParser
import Glibc
import NIOCore
import ThumbcacheProtocol

struct Show: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Draw an image on the terminal.",
        discussion: """
            As get, but the picture is drawn: with the graphics of the terminal where it says that it has those of \
            kitty, else with half-block characters, in as many colours as there are. Without colours, on a pipe or \
            with NO_COLOR, it is ASCII. Another program decodes the picture, and can do nothing else; what reaches \
            the terminal is made of the colours of pixels alone.

            Where there is no image the exit status is 4.

            Example:
              thumbcachectl show alice bob@example.org --columns 20
            """)

    @Argument(help: "The logged-in account.")
    var user: String

    @Argument(help: "The person whose picture it is.")
    var profile: String

    @Option(help: ArgumentHelp("Pixels, 1 to 4096. Each size is an image of its own.", valueName: "px"))
    var size: Int?

    @Option(help: ArgumentHelp("How wide it is drawn at most, 1 to 1000.", valueName: "n"))
    var columns = 40

    @Flag(help: "Draw with characters, whatever graphics the terminal has.")
    var cells = false

    @Flag(help: "Do not download: what is held, fresh or stale, or nothing.")
    var cached = false

    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user)
        try thumbcachectl.validate("size", size, in: CommandLimits.size, "pixels")
        try thumbcachectl.validate("columns", columns, in: 1...1_000, "columns")
    }

    func run(in environment: Environment) async throws(Failure) {
        // Before anything is downloaded for nothing.
        let decoder = try PictureDecoder()
        let request = words("GET", user, profile) + option("SIZE", size) + flag("CACHED", cached)
        guard let image = try await environment.ask(request, daemon).bytes else {
            let reason = cached ? "none is held" : "neither the cache nor the origin has one"
            throw Failure(.noImage, "there is no such image: \(reason)")
        }
        let terminal = Terminal(STDOUT_FILENO, variable: environment.variable)
        let room = terminal.isTerminal ? terminal.size : .usual
        // A line is left for the prompt.
        let (width, rows) = (min(columns, room.columns), max(1, room.rows - 1))
        if !cells, terminal.hasColour, KittyGraphics.isOffered(kind: environment.variable("TERM") ?? "") {
            let cell = terminal.cell
            let side = min(width * cell.width, rows * cell.height, 1_024)
            try write(Array((KittyGraphics.text(try decoder.pixels(image, side: side)) + "\n").utf8))
        } else {
            let pixels = try decoder.pixels(image, side: min(width, 2 * rows))
            let lines = CellDrawing(pixels: pixels, colours: terminal.colours).lines
            try write(Array(lines.map { $0 + "\n" }.joined().utf8))
        }
    }
}

import Glibc

/// What may be written to a descriptor beside plain text. The one place that knows.
struct Terminal {
    enum Style: Int {
        case bold = 1
        case faint = 2
        case red = 31
        case green = 32
        case yellow = 33
    }

    struct Size: Equatable {
        var columns: Int
        var rows: Int

        static let usual = Size(columns: 80, rows: 24)
    }

    let descriptor: Int32
    let isTerminal: Bool
    /// Whether the cursor can be moved.
    let hasCursor: Bool
    let hasColour: Bool

    init(_ descriptor: Int32, variable: (String) -> String?) {
        self.init(descriptor, isTerminal: thumbcachectl.isTerminal(descriptor), variable: variable)
    }

    init(_ descriptor: Int32, isTerminal: Bool, variable: (String) -> String?) {
        self.descriptor = descriptor
        self.isTerminal = isTerminal
        let kind = variable("TERM") ?? ""
        hasCursor = isTerminal && !kind.isEmpty && kind != "dumb"
        // https://no-color.org
        hasColour = hasCursor && (variable("NO_COLOR") ?? "").isEmpty
    }

    func paint(_ text: String, _ style: Style) -> String {
        hasColour ? "\u{1b}[\(style.rawValue)m\(text)\u{1b}[0m" : text
    }

    /// ioctl_tty(2), TIOCGWINSZ. A terminal that does not know its size says 0.
    var size: Size {
        var size = winsize()
        guard ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else { return .usual }
        return Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }
}

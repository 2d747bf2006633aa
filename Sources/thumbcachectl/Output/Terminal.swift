import Glibc

/// The capabilities of a terminal: cursor, colors and size.
struct Terminal {
    enum Style: Int {
        case bold = 1
        case faint = 2
        case red = 31
        case green = 32
        case yellow = 33
    }

    enum Colors {
        case none
        /// The 256 numbered colors.
        case numbered
        /// 24-bit colors.
        case all
    }

    struct Size: Equatable {
        var columns: Int
        var rows: Int

        static let standard = Size(columns: 80, rows: 24)
    }

    let descriptor: Int32
    let isTerminal: Bool
    /// Whether escape sequences can move the cursor.
    let hasCursor: Bool
    let colors: Colors
    var hasColor: Bool { colors != .none }

    init(_ descriptor: Int32, variable: (String) -> String?) {
        self.init(descriptor, isTerminal: thumbcachectl.isTerminal(descriptor), variable: variable)
    }

    init(_ descriptor: Int32, isTerminal: Bool, variable: (String) -> String?) {
        self.descriptor = descriptor
        self.isTerminal = isTerminal
        let kind = variable("TERM") ?? ""
        hasCursor = isTerminal && !kind.isEmpty && kind != "dumb"
        // https://no-color.org
        let wantsNone = !hasCursor || !(variable("NO_COLOR") ?? "").isEmpty
        // https://github.com/termstandard/colors
        let hasAll = ["truecolor", "24bit"].contains(variable("COLORTERM") ?? "") || kind.hasSuffix("-direct")
        colors = wantsNone ? .none : hasAll ? .all : .numbered
    }

    func paint(_ text: String, _ style: Style) -> String {
        hasColor ? "\u{1b}[\(style.rawValue)m\(text)\u{1b}[0m" : text
    }

    var size: Size {
        let window = window
        guard window.ws_col > 0, window.ws_row > 0 else { return .standard }
        return Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
    }

    /// Pixels of a character cell.
    var cell: (width: Int, height: Int) {
        let (window, size) = (window, size)
        guard window.ws_xpixel > 0, window.ws_ypixel > 0 else { return (8, 16) }
        return (max(1, Int(window.ws_xpixel) / size.columns), max(1, Int(window.ws_ypixel) / size.rows))
    }

    /// TIOCGWINSZ, see ioctl_tty(2). Unknown values are 0.
    private var window: winsize {
        var window = winsize()
        return ioctl(descriptor, UInt(TIOCGWINSZ), &window) == 0 ? window : winsize()
    }
}

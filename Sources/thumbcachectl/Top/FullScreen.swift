import Glibc
import LinuxSupport

/// Uses the whole screen of a terminal, and restores it afterwards.
final class FullScreen {
    private let terminal: Terminal
    private var before: termios?
    private var hasLeft = false

    /// - Parameter quit: called when q is pressed or the input ends.
    init(_ terminal: Terminal, quit: @escaping @Sendable () -> Void) throws(Failure) {
        self.terminal = terminal
        var settings = termios()
        if isTerminal(STDIN_FILENO), tcgetattr(STDIN_FILENO, &settings) == 0 {
            before = settings
            // Unbuffered input without echo. ^C still sends a signal. ^Z is disabled: a stopped program would leave the
            // terminal in an unusable state.
            settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
            withUnsafeMutableBytes(of: &settings.c_cc) { $0[Int(VSUSP)] = 0 }
            tcsetattr(STDIN_FILENO, TCSANOW, &settings)
            do throws(SystemError) {
                pthread_detach(try startThread(named: "keys") { Self.readKeys(quit) })
            } catch {
                leave()
                throw Failure(.refused, "\(error)")
            }
        }
        // Alternate screen, hidden cursor, no line wrap.
        try put("\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l")
    }

    deinit { leave() }

    private static func readKeys(_ quit: () -> Void) {
        var key: UInt8 = 0
        while true {
            let count = read(STDIN_FILENO, &key, 1)
            if count < 0, errno == EINTR { continue }
            if count < 1 || key == UInt8(ascii: "q") || key == UInt8(ascii: "Q") { return quit() }
        }
    }

    /// Overwrites the previous lines, so that the screen does not flicker. Each line is erased first: erasing after a
    /// line of full width would remove its last character.
    func show(_ lines: [TopScreen.Line]) throws(Failure) {
        let text = lines.map { line in "\u{1b}[K" + (line.style.map { terminal.paint(line.text, $0) } ?? line.text) }
        try put("\u{1b}[H" + text.joined(separator: "\r\n") + (lines.count < terminal.size.rows ? "\r\n\u{1b}[J" : ""))
    }

    func leave() {
        guard !hasLeft else { return }
        hasLeft = true
        do throws(Failure) {
            try put("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l")
        } catch {
            // The terminal is closed.
        }
        if var before { tcsetattr(STDIN_FILENO, TCSANOW, &before) }
    }

    private func put(_ text: String) throws(Failure) { _ = try writeUnlessClosed(text, to: terminal.descriptor) }
}

import Glibc
import LinuxSupport

/// A terminal whose whole screen belongs to this program, until that leaves it as it was.
final class FullScreen {
    private let terminal: Terminal
    private var before: termios?
    private var hasLeft = false

    /// - Parameter quit: called when q is pressed, or nobody can press anything any more.
    init(_ terminal: Terminal, quit: @escaping @Sendable () -> Void) throws(Failure) {
        self.terminal = terminal
        var settings = termios()
        if isTerminal(STDIN_FILENO), tcgetattr(STDIN_FILENO, &settings) == 0 {
            before = settings
            // Keys come one by one and do not show. ^C stays a signal; ^Z is none, since a program that is stopped
            // would leave a screen that nobody can use.
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
        // The other screen, no cursor, and no second line for what is too long.
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

    /// Over what is there, so that nothing flickers. What is cleared is so before a line is written: behind one that is
    /// as long as the screen is wide, its last character would go.
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
            // The terminal has gone.
        }
        if var before { tcsetattr(STDIN_FILENO, TCSANOW, &before) }
    }

    private func put(_ text: String) throws(Failure) { _ = try writeOn(text, to: terminal.descriptor) }
}

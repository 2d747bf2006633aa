import Glibc
import LinuxSupport

/// Pictures by the protocol that kitty began: https://sw.kovidgoyal.net/kitty/graphics-protocol
enum KittyGraphics {
    /// Base64 digits of one escape sequence.
    private static let chunk = 4_096

    /// What draws a picture at the cursor. Its bytes are digits here, whatever they are.
    static func text(_ pixels: Pixels) -> String {
        let digits = Array(base64(pixels.bytes).utf8)
        var text = ""
        for start in stride(from: 0, to: digits.count, by: chunk) {
            // Transmit and show, RGBA, and answer nothing.
            let first = start == 0 ? "a=T,f=32,s=\(pixels.width),v=\(pixels.height),q=2," : ""
            let more = start + chunk < digits.count ? 1 : 0
            let part = String(decoding: digits[start..<min(start + chunk, digits.count)], as: UTF8.self)
            text += "\u{1b}_G\(first)m=\(more);\(part)\u{1b}\\"
        }
        return text
    }

    // MARK: Whether a terminal has it

    /// Asks for a picture that is not shown, and then what every terminal answers: device attributes (DA1).
    static let question = "\u{1b}_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\u{1b}\\\u{1b}[c"

    /// What a terminal has said so far: nil until it has said its device attributes.
    static func isOffered(in answer: [UInt8]) -> Bool? {
        let attributes = Array("\u{1b}[?".utf8)
        guard let start = answer.indices.first(where: { answer[$0...].starts(with: attributes) }),
            answer[start...].contains(UInt8(ascii: "c"))
        else { return nil }
        let yes = Array("\u{1b}_Gi=31;OK\u{1b}\\".utf8)
        return answer[..<start].indices.contains { answer[$0..<start].starts(with: yes) }
    }

    /// Asks the terminal of this process, for a second at most. Without one, or behind a multiplexer, it has no
    /// graphics.
    static func isOffered(kind: String) -> Bool {
        // The console prints what it does not know; multiplexers keep it from the terminal behind them.
        guard !["linux", "screen", "tmux"].contains(where: { kind == $0 || kind.hasPrefix($0 + "-") }) else {
            return false
        }
        let terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else { return false }
        defer { close(terminal) }
        var before = termios()
        // In the background a change of the terminal would stop the process.
        guard tcgetpgrp(terminal) == getpgrp(), tcgetattr(terminal, &before) == 0 else { return false }
        var settings = before
        // Answers come at once, and do not show. ^C is a character until the answer is there.
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO | ISIG)
        guard tcsetattr(terminal, TCSANOW, &settings) == 0 else { return false }
        let (answer, isWhole) = ask(terminal)
        // What comes late would be taken for what somebody types.
        tcsetattr(terminal, isWhole == nil ? TCSAFLUSH : TCSANOW, &before)
        // To the process: this thread of the runtime has signals blocked.
        if answer.contains(3) { kill(getpid(), SIGINT) }
        return isWhole ?? false
    }

    private static func ask(_ terminal: CInt) -> (answer: [UInt8], isOffered: Bool?) {
        var answer: [UInt8] = []
        do throws(SystemError) {
            try writeAll(Array(question.utf8), to: terminal)
        } catch {
            return ([], nil)
        }
        let deadline = nanoseconds(of: CLOCK_MONOTONIC) + 1_000_000_000
        var chunk = [UInt8](repeating: 0, count: 256)
        while answer.count < 4_096 {
            let left = (deadline - nanoseconds(of: CLOCK_MONOTONIC)) / 1_000_000
            var waiting = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
            guard left > 0, poll(&waiting, 1, CInt(left)) > 0 else { return (answer, nil) }
            let count = read(terminal, &chunk, chunk.count)
            guard count > 0 else { return (answer, nil) }
            answer += chunk.prefix(count)
            if let isOffered = isOffered(in: answer) { return (answer, isOffered) }
            if answer.contains(3) { return (answer, nil) }
        }
        return (answer, nil)
    }
}

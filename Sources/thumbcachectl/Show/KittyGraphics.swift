import Glibc
import LinuxSupport

/// The terminal graphics protocol of kitty: https://sw.kovidgoyal.net/kitty/graphics-protocol
enum KittyGraphics {
    /// Base64 digits per escape sequence.
    private static let chunk = 4_096

    /// The escape sequences that draw an image at the cursor.
    static func text(_ pixels: Pixels) -> String {
        let digits = Array(base64(pixels.bytes).utf8)
        var text = ""
        for start in stride(from: 0, to: digits.count, by: chunk) {
            // Transmit and display RGBA, without a response.
            let first = start == 0 ? "a=T,f=32,s=\(pixels.width),v=\(pixels.height),q=2," : ""
            let more = start + chunk < digits.count ? 1 : 0
            let part = String(decoding: digits[start..<min(start + chunk, digits.count)], as: UTF8.self)
            text += "\u{1b}_G\(first)m=\(more);\(part)\u{1b}\\"
        }
        return text
    }

    /// Queries graphics support with an image that is not shown, then device attributes, which every terminal answers.
    static let query = "\u{1b}_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\u{1b}\\\u{1b}[c"

    /// Whether the response reports graphics support; nil until it contains the device attributes.
    static func isSupported(in response: [UInt8]) -> Bool? {
        let attributes = Array("\u{1b}[?".utf8)
        guard let start = response.indices.first(where: { response[$0...].starts(with: attributes) }),
            response[start...].contains(UInt8(ascii: "c"))
        else { return nil }
        let yes = Array("\u{1b}_Gi=31;OK\u{1b}\\".utf8)
        return response[..<start].indices.contains { response[$0..<start].starts(with: yes) }
    }

    /// Queries the controlling terminal, for at most one second. False without a terminal, or in a multiplexer.
    static func isSupported(kind: String) -> Bool {
        // The Linux console prints unknown sequences, and multiplexers do not forward them.
        guard !["linux", "screen", "tmux"].contains(where: { kind == $0 || kind.hasPrefix($0 + "-") }) else {
            return false
        }
        let terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else { return false }
        defer { close(terminal) }
        var before = termios()
        // Changing terminal settings in the background would stop the process.
        guard tcgetpgrp(terminal) == getpgrp(), tcgetattr(terminal, &before) == 0 else { return false }
        var settings = before
        // Unbuffered and without echo. ^C arrives as a byte instead of a signal.
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO | ISIG)
        guard tcsetattr(terminal, TCSANOW, &settings) == 0 else { return false }
        let (response, isComplete) = query(terminal)
        // A late response would look like user input, so it is discarded.
        tcsetattr(terminal, isComplete == nil ? TCSAFLUSH : TCSANOW, &before)
        // The signal goes to the process, because this thread has signals blocked.
        if response.contains(3) { kill(getpid(), SIGINT) }
        return isComplete ?? false
    }

    private static func query(_ terminal: CInt) -> (response: [UInt8], isSupported: Bool?) {
        var response: [UInt8] = []
        do throws(SystemError) {
            try writeAll(Array(query.utf8), to: terminal)
        } catch {
            return ([], nil)
        }
        let deadline = nanoseconds(of: CLOCK_MONOTONIC) + 1_000_000_000
        var chunk = [UInt8](repeating: 0, count: 256)
        while response.count < 4_096 {
            let left = (deadline - nanoseconds(of: CLOCK_MONOTONIC)) / 1_000_000
            var waiting = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
            guard left > 0, poll(&waiting, 1, CInt(left)) > 0 else { return (response, nil) }
            let count = read(terminal, &chunk, chunk.count)
            guard count > 0 else { return (response, nil) }
            response += chunk.prefix(count)
            if let isSupported = isSupported(in: response) { return (response, isSupported) }
            if response.contains(3) { return (response, nil) }
        }
        return (response, nil)
    }
}

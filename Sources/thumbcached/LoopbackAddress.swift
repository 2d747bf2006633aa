import Glibc

/// An address and port on which only this machine can connect.
struct LoopbackAddress: Equatable, Sendable, CustomStringConvertible {
    /// Numeric: in 127.0.0.0/8, or ::1.
    let host: String
    let port: UInt16

    /// Reads `127.0.0.1:9187` or `[::1]:9187`; nil for anything else. Names are not resolved: one look-up later
    /// `localhost` could be somewhere else.
    init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard digits.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }),
            let port = UInt16(digits), port > 0
        else { return nil }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
            guard host == "::1" else { return nil }
        } else {
            var address = in_addr()
            guard inet_pton(AF_INET, String(host), &address) == 1,
                UInt32(bigEndian: address.s_addr) >> 24 == 127
            else { return nil }
        }
        self.host = String(host)
        self.port = port
    }

    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

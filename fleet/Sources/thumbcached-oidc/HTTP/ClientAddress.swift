import Glibc
import NIOCore

/// Whose requests are counted together.
enum ClientAddress {
    /// - Parameters:
    ///   - peer: of the connection.
    ///   - forwarded: what X-Forwarded-For has, in the order of its fields. Only its last address counts, which the
    ///     proxy itself has added; all before it anybody may have written.
    ///   - proxies: who is believed.
    static func text(peer: SocketAddress?, forwarded: [String], proxies: Set<String>) -> String {
        guard let peer = peer?.ipAddress.flatMap(normal) else { return "unknown" }
        guard proxies.contains(peer.text),
            let last = forwarded.last?.split(separator: ",").last,
            let client = normal(String(last.drop { $0 == " " }.prefix { $0 != " " }))
        else { return peer.network }
        return client.network
    }

    /// An address in one spelling, and what of it is one customer's: of IPv6 the first 64 bits.
    /// - Returns: nil for what is no address.
    static func normal(_ text: String) -> (text: String, network: String)? {
        var four = in_addr()
        if inet_pton(AF_INET, text, &four) == 1 { return (text, text) }
        var six = in6_addr()
        guard inet_pton(AF_INET6, text, &six) == 1 else { return nil }
        let words = withUnsafeBytes(of: six) { bytes in
            stride(from: 0, to: 16, by: 2).map { UInt16(bytes[$0]) << 8 | UInt16(bytes[$0 + 1]) }
        }
        var spelling = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(AF_INET6, &six, &spelling, socklen_t(spelling.count)) != nil else { return nil }
        let whole = String(decoding: spelling.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        // RFC 4291, section 2.5.5.2: an address of IPv4, as a socket for both has it.
        if words[..<6] == [0, 0, 0, 0, 0, 0xFFFF] {
            let four = "\(words[6] >> 8).\(words[6] & 255).\(words[7] >> 8).\(words[7] & 255)"
            return (four, four)
        }
        return (whole, words[..<4].map { String($0, radix: 16) }.joined(separator: ":") + "::/64")
    }
}

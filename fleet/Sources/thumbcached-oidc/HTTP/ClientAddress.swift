import Glibc
import NIOCore

/// Derives the address that limits and log messages use for a client.
enum ClientAddress {
    /// The peer's network, or a common name for all peers on a Unix socket.
    static func network(of peer: SocketAddress?) -> String {
        isProxy(peer) ? "proxy" : peer?.ipAddress.flatMap(normal)?.network ?? "unknown"
    }

    /// The client that a proxy names, for the log.
    ///
    /// Only a peer on the Unix socket is a trusted proxy, since the mode of the socket's file decides who may connect:
    /// any account can connect from a loopback address. Nothing is limited by this address.
    ///
    /// - Parameter forwarded: the values of X-Forwarded-For in order. Only the last address counts, which the proxy
    ///   itself has added; the client may have written those before it.
    static func client(of peer: SocketAddress?, forwarded: [String]) -> String {
        guard isProxy(peer), let last = forwarded.last?.split(separator: ",").last,
            let client = normal(String(last.drop { $0 == " " }.prefix { $0 != " " }))
        else { return network(of: peer) }
        return client.network
    }

    private static func isProxy(_ peer: SocketAddress?) -> Bool { peer?.protocol == .unix }

    /// An address in its canonical spelling, and the network that one client can use: 64 bits of an IPv6 address, and
    /// all of 127.0.0.0/8, from each of whose addresses any account of this machine can connect.
    /// - Returns: nil for invalid addresses.
    static func normal(_ text: String) -> (text: String, network: String)? {
        var four = in_addr()
        if inet_pton(AF_INET, text, &four) == 1 { return (text, text.hasPrefix("127.") ? "127.0.0.0/8" : text) }
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
            return normal(four)
        }
        return (whole, words[..<4].map { String($0, radix: 16) }.joined(separator: ":") + "::/64")
    }
}

import Glibc

/// An IP address without port or zone.
package enum IPAddress: Hashable, Sendable {
    case v4(UInt32)
    case v6(UInt64, UInt64)

    /// Parses dotted decimal or a notation of RFC 4291 section 2.2; nil for anything else, such as other spellings of
    /// numbers, brackets and zones.
    package init?(_ text: String) {
        var four = in_addr()
        var six = in6_addr()
        if inet_pton(AF_INET, text, &four) == 1 {
            self = .v4(UInt32(bigEndian: four.s_addr))
        } else if inet_pton(AF_INET6, text, &six) == 1 {
            self = .init(six)
        } else {
            return nil
        }
    }

    /// Parses libcurl's text for an end of a connection, which may have a zone.
    package init?(end text: String) { self.init(String(text.prefix { $0 != "%" })) }

    package init(_ six: in6_addr) {
        self = withUnsafeBytes(of: six) { bytes in
            .v6(
                UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
                UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
        }
    }
}

extension IPAddress: CustomStringConvertible {
    /// IPv6 addresses are in the form of RFC 5952.
    package var description: String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        switch self {
        case .v4(let bits):
            var address = in_addr(s_addr: bits.bigEndian)
            inet_ntop(AF_INET, &address, &text, socklen_t(text.count))
        case .v6(let high, let low):
            var words = (high.bigEndian, low.bigEndian)
            inet_ntop(AF_INET6, &words, &text, socklen_t(text.count))
        }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

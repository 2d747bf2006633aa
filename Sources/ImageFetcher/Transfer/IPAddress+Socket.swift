// Declares `sockaddr`, through curl.h: with whole-module compilation, it comes from there and not from Glibc.
import CCurl
import Glibc
import Origins

extension IPAddress {
    /// Nil unless the address is IPv4 or IPv6 and complete.
    init?(_ address: UnsafePointer<sockaddr>, length: Int) {
        let bytes = UnsafeRawPointer(address)
        switch Int32(address.pointee.sa_family) {
        case AF_INET where length >= MemoryLayout<sockaddr_in>.size:
            self = .v4(UInt32(bigEndian: bytes.loadUnaligned(as: sockaddr_in.self).sin_addr.s_addr))
        case AF_INET6 where length >= MemoryLayout<sockaddr_in6>.size:
            self = .init(bytes.loadUnaligned(as: sockaddr_in6.self).sin6_addr)
        default:
            return nil
        }
    }
}

// For socket(2) and its kinds, which curl.h includes: see IPAddress+Socket.swift.
import CCurl
import Glibc

/// Whether what failed may have failed for want of a descriptor. Resolvers do not tell: a name server that they have no
/// socket for is to them one that did not answer.
enum DescriptorShortage {
    /// Asks for a socket of the kind that a resolver takes. Any other may be refused to a process that is confined.
    static var isNow: Bool {
        let probe = socket(AF_INET, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard probe >= 0 else { return isShortage(errno) }
        close(probe)
        return false
    }

    /// Whether socket(2) fails with that for want of something, and not because it must not be.
    static func isShortage(_ code: CInt) -> Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) }
}

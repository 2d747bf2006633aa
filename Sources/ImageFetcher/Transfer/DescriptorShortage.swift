// Declares socket(2) and its constants, through curl.h: see IPAddress+Socket.swift.
import CCurl
import Glibc

/// Detects a shortage of descriptors after a failed lookup. Resolvers do not report it: without a socket, they report
/// that the name server did not respond.
enum DescriptorShortage {
    /// Tries to open a socket of the kind that a resolver uses; a confined process may be refused others.
    static var isNow: Bool {
        let probe = socket(AF_INET, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard probe >= 0 else { return isShortage(errno) }
        close(probe)
        return false
    }

    /// Whether an error of socket(2) means a shortage, and not a missing permission.
    static func isShortage(_ code: CInt) -> Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) }
}

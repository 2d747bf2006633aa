import Glibc

/// The address of a Unix socket: unix(7).
public struct UnixAddress: Sendable {
    /// Maximum bytes of a path without the terminating NUL.
    public static let longestPath = 107

    private let path: [UInt8]
    private let isAbstract: Bool

    /// - Parameter isAbstract: the name is in the abstract namespace; its first character is replaced by NUL.
    public init(_ path: String, isAbstract: Bool = false) throws(SystemError) {
        let bytes = Array(path.utf8)
        guard bytes.count <= Self.longestPath else {
            throw SystemError("use \(path) as a socket path, which may have at most 107 bytes", code: ENAMETOOLONG)
        }
        self.path = isAbstract ? [0] + bytes.dropFirst() : bytes
        self.isAbstract = isAbstract
    }

    /// Lends the address for system calls.
    public func withSocketAddress<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        // A path ends with a NUL; an abstract name may contain NULs and ends with its length.
        let used = MemoryLayout<sa_family_t>.size + path.count + (isAbstract ? 0 : 1)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(used)) }
        }
    }
}

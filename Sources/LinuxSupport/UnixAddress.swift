import Glibc

/// The address of a Unix socket: unix(7).
public struct UnixAddress: Sendable {
    /// Bytes of a path, without the NUL that ends it.
    public static let longestPath = 107

    private let path: [UInt8]
    private let isAbstract: Bool

    /// - Parameter isAbstract: a name outside the file system; its first character stands for the NUL that begins it.
    /// - Throws: ENAMETOOLONG for a path of more than 107 bytes.
    public init(_ path: String, isAbstract: Bool = false) throws(SystemError) {
        let bytes = Array(path.utf8)
        guard bytes.count <= Self.longestPath else {
            throw SystemError("use \(path) as the path of a socket, which may have 107 bytes", code: ENAMETOOLONG)
        }
        self.path = isAbstract ? [0] + bytes.dropFirst() : bytes
        self.isAbstract = isAbstract
    }

    /// Lends the address as system calls take it.
    public func withSocketAddress<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        // The length of an abstract name counts, since NULs may be part of it; a path ends with one.
        let used = MemoryLayout<sa_family_t>.size + path.count + (isAbstract ? 0 : 1)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(used)) }
        }
    }
}

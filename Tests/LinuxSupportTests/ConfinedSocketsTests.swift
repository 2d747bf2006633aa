import CLinux
import CRawCalls
import Glibc
import LinuxSupport
import Testing

/// Sockets of a confined thread and their reach.
struct ConfinedSocketsTests {
    private let daemon = Confinement(readable: [], writable: [], sockets: .unix)
    private let fetcher = Confinement(readable: [], writable: [], sockets: .internet)
    private let stream = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
    private let datagram = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
    private let raw = CInt(SOCK_RAW.rawValue) | CInt(SOCK_CLOEXEC.rawValue)

    @Test func `the daemon can create Unix sockets only`() throws {
        let (stream, raw) = (stream, raw)
        let codes = try confined(daemon) {
            [
                failureToOpen { socket(AF_UNIX, stream, 0) }, failureToOpen { socket(AF_INET, stream, 0) },
                failureToOpen { socket(AF_INET6, stream, 0) }, failureToOpen { socket(AF_NETLINK, raw, 0) },
                failureToOpen { socket(AF_PACKET, raw, 0) },
            ]
        }
        #expect(codes == [0, EAFNOSUPPORT, EAFNOSUPPORT, EAFNOSUPPORT, EAFNOSUPPORT])
    }

    @Test func `the fetcher can create TCP, UDP and route sockets only`() throws {
        let (stream, datagram, raw) = (stream, datagram, raw)
        let codes = try confined(fetcher) {
            [
                failureToOpen { socket(AF_INET, stream, 0) }, failureToOpen { socket(AF_INET, datagram, 17) },
                failureToOpen { socket(AF_NETLINK, raw, 0) },
                failureToOpen { socket(AF_UNIX, stream, 0) }, failureToOpen { socket(AF_VSOCK, stream, 0) },
                failureToOpen { socket(AF_PACKET, raw, 0) }, failureToOpen { socket(AF_INET, raw, 1) },
                failureToOpen { socket(AF_INET, datagram, 1) }, failureToOpen { socket(AF_INET, stream, 262) },
                failureToOpen { socket(AF_NETLINK, raw, 9) },
            ]
        }
        #expect(
            codes == [
                0, 0, 0, EAFNOSUPPORT, EAFNOSUPPORT, EAFNOSUPPORT, EPERM, EPROTONOSUPPORT, EPROTONOSUPPORT,
                EPROTONOSUPPORT,
            ])
    }

    @Test func `the fetcher can create socket pairs of SOCK_STREAM only`() throws {
        let (stream, datagram) = (stream, datagram)
        let codes = try confined(fetcher) {
            [stream, datagram, CInt(SOCK_SEQPACKET.rawValue)].map { type in
                var pair: [CInt] = [-1, -1]
                defer { for descriptor in pair where descriptor != -1 { close(descriptor) } }
                return failure { socketpair(AF_UNIX, type, 0, &pair) }
            }
        }
        #expect(codes == [0, EPERM, EPERM])
    }

    @Test func `the fetcher cannot listen`() throws {
        #expect(try confined(fetcher) { raw_call(raw_call_number("listen"), -1, 1, 0) } == EPERM)
        #expect(try confined(daemon) { raw_call(raw_call_number("listen"), -1, 1, 0) } == EBADF)
    }

    @Test(.enabled(if: Kernel.landlock >= 4, "Landlock 4 is not available"))
    func `an existing TCP socket cannot be bound, nor connected by the daemon`() throws {
        let (first, second) = (socket(AF_INET, stream, 0), socket(AF_INET, stream, 0))
        defer { for descriptor in [first, second] { close(descriptor) } }
        let here = localhost(port: 9)
        let ofFetcher = try confined(fetcher) { failure { bind(first, to: here) } }
        let ofDaemon = try confined(daemon) {
            [failure { bind(second, to: here) }, failure { connect(second, to: here) }]
        }
        #expect(ofFetcher == EACCES)
        #expect(ofDaemon == [EACCES, EACCES])
        let connected = try confined(fetcher) { failure { connect(first, to: here) } }
        #expect([0, ECONNREFUSED].contains(connected))
    }

    @Test(.enabled(if: Kernel.landlock >= 6, "Landlock 6 is not available"))
    func `the daemon can connect to abstract sockets and the fetcher cannot`() throws {
        let (listener, first, second) = (
            socket(AF_UNIX, stream, 0), socket(AF_UNIX, stream, 0), socket(AF_UNIX, stream, 0)
        )
        defer { for descriptor in [listener, first, second] { close(descriptor) } }
        // With an address without a name, the kernel selects an abstract one: unix(7), "Autobind feature".
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        try #require(bind(listener, to: address, length: 2) == 0 && listen(listener, 2) == 0)
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        _ = withUnsafeMutableBytes(of: &address) {
            getsockname(listener, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        let (bound, size) = (address, length)
        #expect(try confined(fetcher) { failure { connect(first, to: bound, length: size) } } == EPERM)
        #expect(try confined(daemon) { failure { connect(second, to: bound, length: size) } } == 0)
    }
}

private func localhost(port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return address
}

private func bind<Address>(_ socket: CInt, to address: Address, length: socklen_t? = nil) -> CInt {
    withUnsafeBytes(of: address) {
        Glibc.bind(socket, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), length ?? socklen_t($0.count))
    }
}

private func connect<Address>(_ socket: CInt, to address: Address, length: socklen_t? = nil) -> CInt {
    withUnsafeBytes(of: address) {
        Glibc.connect(socket, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), length ?? socklen_t($0.count))
    }
}

import NIOCore
import Testing

@testable import thumbcached_oidc

@Suite struct AddressTests {
    @Test(arguments: [
        ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("127.9.8.7", "127.0.0.0/8"),
        ("::ffff:127.0.0.2", "127.0.0.0/8"), ("::1", "0:0:0:0::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("2001:db8:1:2::", "2001:db8:1:2::/64"),
    ])
    func `an IPv6 /64 network is one peer`(_ text: String, _ network: String) {
        #expect(ClientAddress.normal(text)?.network == network)
    }

    @Test func `F84: X-Forwarded-For counts only on the Unix socket, and only its last address`() throws {
        let proxy = try SocketAddress(unixDomainSocketPath: "")
        func client(_ forwarded: String...) -> String { ClientAddress.client(of: proxy, forwarded: forwarded) }
        #expect(client() == "proxy")
        #expect(client("localhost") == "proxy")
        #expect(client("192.0.2.1,") == "192.0.2.1")
        #expect(client("192.0.2.1", "192.0.2.2, 192.0.2.3 ") == "192.0.2.3")
        for peer in ["127.0.0.1", "192.0.2.9", "::1"] {
            let address = try SocketAddress(ipAddress: peer, port: 1)
            #expect(ClientAddress.client(of: address, forwarded: ["192.0.2.1"]) == ClientAddress.normal(peer)?.network)
        }
        #expect(ClientAddress.client(of: nil, forwarded: ["192.0.2.1"]) == "unknown")
    }

    @Test func `F84: the number of peers is limited, and those rejected most are kept`() {
        var limiter = RefusalLimiter(perMinute: 2)
        for _ in 0..<2 { #expect(limiter.refuse("worst", at: 0) == nil) }
        for index in 0..<10_000 { #expect(limiter.refuse("\(index)", at: 0) == nil) }
        #expect(limiter.count == RefusalLimiter.mostPeers)
        #expect(limiter.refuse("worst", at: 0) == 30)
        // After a minute no peer is limited.
        #expect(limiter.refuse("new", at: 60_000) == nil)
        #expect(limiter.count == 1)
        var none = RefusalLimiter(perMinute: 0)
        for _ in 0..<100 { #expect(none.refuse("a", at: 0) == nil) }
        #expect(none.count == 0)
    }

    @Test(arguments: [
        "127.0.0.1:9421", "[::1]:0", "0.0.0.0:65535", "/run/x.sock", "/" + String(repeating: "x", count: 106),
    ])
    func `a listen address is an address with a port, or the path of a socket`(_ text: String) {
        #expect(ListenAddress(text)?.description == text)
    }

    @Test(arguments: [
        "", ":1", "localhost:1", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:+1", "::1:1", "[127.0.0.1]:1", "[::1]",
        "run/x.sock", "/x\0", "/" + String(repeating: "x", count: 107),
    ])
    func `other listen addresses are invalid`(_ text: String) { #expect(ListenAddress(text) == nil) }
}

import NIOCore
import Testing

@testable import thumbcached_oidc

@Suite struct AddressTests {
    @Test(arguments: [
        ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("::1", "0:0:0:0::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("2001:db8:1:2::", "2001:db8:1:2::/64"),
    ])
    func `of IPv6 the first half is one peer`(_ text: String, _ network: String) {
        #expect(ClientAddress.normal(text)?.network == network)
    }

    @Test func `what is no address is the peer's own`() throws {
        let peer = try SocketAddress(ipAddress: "127.0.0.1", port: 1)
        func text(_ forwarded: String...) -> String {
            ClientAddress.text(peer: peer, forwarded: forwarded, proxies: ["127.0.0.1"])
        }
        #expect(text() == "127.0.0.1")
        #expect(text("localhost") == "127.0.0.1")
        #expect(text("192.0.2.1,") == "192.0.2.1")
        #expect(text("192.0.2.1", "192.0.2.2, 192.0.2.3 ") == "192.0.2.3")
        #expect(ClientAddress.text(peer: nil, forwarded: ["192.0.2.1"], proxies: []) == "unknown")
    }

    @Test func `F84: only so many addresses are kept, and the worst stay`() {
        var limiter = RefusalLimiter(perMinute: 2)
        for _ in 0..<3 { limiter.refused("worst", at: 0) }
        for index in 0..<10_000 { limiter.refused("\(index)", at: 0) }
        #expect(limiter.count == RefusalLimiter.mostAddresses)
        #expect(limiter.wait("worst", at: 0) == 30)
        // A minute later nothing is left of them.
        limiter.refused("new", at: 60_000)
        #expect(limiter.count == 1)
        var none = RefusalLimiter(perMinute: 0)
        for _ in 0..<100 { none.refused("a", at: 0) }
        #expect(none.wait("a", at: 0) == nil && none.count == 0)
    }

    @Test(arguments: [("127.0.0.1:9421", "127.0.0.1"), ("[::1]:0", "::1"), ("0.0.0.0:65535", "0.0.0.0")])
    func `where to listen is an address and a port`(_ text: String, _ host: String) {
        #expect(ListenAddress(text)?.host == host)
        #expect(ListenAddress(text)?.description == text)
    }

    @Test(arguments: [
        "", ":1", "localhost:1", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:+1", "::1:1", "[127.0.0.1]:1", "[::1]",
    ])
    func `and nothing else`(_ text: String) { #expect(ListenAddress(text) == nil) }
}

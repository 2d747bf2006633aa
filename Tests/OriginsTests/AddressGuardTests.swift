import Testing

@testable import Origins

@Suite struct AddressGuardTests {
    @Test(arguments: [
        ("0.0.0.0", "unspecified"), ("0.1.2.3", "unspecified"),
        ("10.0.0.0", "private"), ("10.255.255.255", "private"),
        ("100.64.0.0", "shared"), ("100.100.100.200", "shared"), ("100.127.255.255", "shared"),
        ("127.0.0.1", "loopback"), ("127.255.255.254", "loopback"),
        ("168.63.129.16", "metadata"), ("169.254.169.254", "metadata"), ("169.254.0.0", "link-local"),
        ("172.16.0.0", "private"), ("172.31.255.255", "private"), ("192.168.0.1", "private"),
        ("192.0.0.192", "reserved"), ("192.0.2.1", "documentation"), ("192.88.99.1", "6to4"),
        ("198.18.0.0", "benchmarking"), ("198.19.255.255", "benchmarking"),
        ("198.51.100.1", "documentation"), ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"), ("239.255.255.255", "multicast"), ("240.0.0.1", "reserved"),
        ("255.255.255.254", "reserved"), ("255.255.255.255", "broadcast"),
    ])
    func `F32: a special-purpose IPv4 address is refused`(text: String, name: String) throws {
        let reason = AddressGuard().refusal(of: try #require(IPAddress(text)))
        #expect(reason?.contains(name) == true, "\(text): \(reason ?? "passes")")
    }

    @Test(arguments: [
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
        "169.253.255.255", "169.255.0.0", "168.63.129.15", "168.63.129.17", "172.15.255.255", "172.32.0.0",
        "192.0.1.0", "192.0.3.0", "192.88.98.1", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
        "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
        "2000::", "2001:200::1", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::1", "2003::1",
        "2606:4700:4700::1111", "2a00:1450::1", "3ffe:ffff::1", "3fff:1000::1",
    ])
    func `a public address passes, also next to a special-purpose range`(text: String) throws {
        #expect(AddressGuard().refusal(of: try #require(IPAddress(text))) == nil)
    }

    @Test(arguments: [
        ("::", "unspecified"), ("::1", "loopback"), ("::2", "IPv4-compatible"), ("::127.0.0.1", "IPv4-compatible"),
        ("::8.8.8.8", "IPv4-compatible"), ("64:ff9b:1::1", "translation"), ("64:ff9b:1:ffff::8.8.8.8", "translation"),
        ("100::1", "discard"), ("100:0:0:1::1", "reserved"), ("5f00::1", "reserved"), ("1fff:ffff::1", "reserved"),
        ("2001::1", "Teredo"), ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"), ("2001:2::1", "benchmarking"),
        ("2001:10::1", "reserved"), ("2001:20::1", "reserved"), ("2001:1ff:ffff::1", "reserved"),
        ("2001:db8::1", "documentation"), ("2001:db8:ffff:ffff::1", "documentation"), ("3fff::1", "documentation"),
        ("3fff:fff:ffff::1", "documentation"), ("2002:7f00:1::", "6to4"), ("2002:0a00:0001::1", "6to4"),
        ("2002:808:808::1", "6to4"), ("4000::1", "reserved"), ("8000::1", "reserved"), ("fc00::1", "unique local"),
        ("fd00:ec2::254", "unique local"), ("fe80::1", "link-local"), ("febf::1", "link-local"),
        ("fec0::1", "site-local"), ("feff::1", "site-local"), ("ff02::1", "multicast"), ("fe00::1", "reserved"),
    ])
    func `F32: a special-purpose IPv6 address is refused`(text: String, name: String) throws {
        let reason = AddressGuard().refusal(of: try #require(IPAddress(text)))
        #expect(reason?.contains(name) == true, "\(text): \(reason ?? "passes")")
    }

    @Test(arguments: [
        ("::ffff:127.0.0.1", "loopback"), ("::ffff:7f00:1", "loopback"), ("::ffff:169.254.169.254", "metadata"),
        ("::ffff:10.1.2.3", "private"), ("::ffff:0.0.0.0", "unspecified"),
        ("64:ff9b::127.0.0.1", "loopback"), ("64:ff9b::192.168.1.1", "private"), ("64:ff9b::a9fe:a9fe", "metadata"),
    ])
    func `F32: an IPv4 address within an IPv6 address is checked`(text: String, name: String) throws {
        let reason = AddressGuard().refusal(of: try #require(IPAddress(text)))
        #expect(reason?.contains(name) == true, "\(text): \(reason ?? "passes")")
    }

    @Test(arguments: ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
    func `a public IPv4 address within an IPv6 address passes, for NAT64`(text: String) throws {
        #expect(AddressGuard().refusal(of: try #require(IPAddress(text))) == nil)
    }

    @Test(arguments: ["", "127.1", "0x7f.0.0.1", "2130706433", "017700000001", "::1%lo", "[::1]", "1.2.3.4.", "a.b"])
    func `only the usual notations are addresses`(text: String) {
        #expect(IPAddress(text) == nil)
    }

    @Test(arguments: ["1.2.3.4", "::1", "2001:db8::ff00:42:8329", "64:ff9b::808:808"])
    func `an address is written as it was read`(text: String) throws {
        #expect(try #require(IPAddress(text)).description == text)
    }

    @Test(arguments: ["9.9.9.9", "2620:fe::fe", "::ffff:9.9.9.9"])
    func `F30: a public address at both ends of a connection is refused`(
        text: String
    ) throws {
        let remote = try #require(IPAddress(text))
        let rules = AddressGuard()
        #expect(rules.refusal(ofRemote: remote, local: remote) == "an address of this machine")
        #expect(rules.refusal(ofRemote: remote, local: IPAddress("192.168.1.2")) == nil)
        #expect(rules.refusal(ofRemote: remote, local: nil) == nil)
        #expect(rules.refusal(ofRemote: try #require(IPAddress("10.0.0.1")), local: remote) == "a private address")
    }
}

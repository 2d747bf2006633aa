/// URLs that lead, or appear to lead, to forbidden addresses. The port is that of a listener on all addresses of this
/// machine.
enum HostileURLs {
    /// Hosts that are non-public addresses in some spelling.
    static let hosts = [
        // Loopback and this machine, in all notations that a C library parses.
        "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0X7F000001",
        "0x7f.1",
        "0x7f.0.0.1", "0x7f.0x0.0x0.0x1", "0177.0.0.1", "0177.0.0.01", "017700000001", "00000177.1", "127.0.0.1.", "0",
        "0x0", "0.0.0.0", "00000000000",
        // Unicode digits, and percent-encoded digits and dots.
        "%31%32%37.0.0.1", "127%2e0%2e0%2e1", "127%2E1", "\u{FF11}\u{FF12}\u{FF17}.0.0.1",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "\u{2460}\u{2461}\u{2466}.0.0.1", "127.0.0.1%00.example.org",
        // IPv6, and IPv4 in it: mapped, compatible, translated, tunneled.
        "[::1]", "[0:0:0:0:0:0:0:1]", "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::]", "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::FFFF:127.0.0.1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]",
        "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::127.0.0.1]", "[64:ff9b:1:7f00:0:100::]",
        "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2002:c0a8:101::1]", "[2001:0:7f00:1::]",
        "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[fe80::1]", "[fe80::1%25lo]", "[fe80::1%lo]", "[::1%25lo]",
        "[fc00::1]", "[fd12:3456:789a::1]", "[fec0::1]", "[ff02::1]", "[100::1]", "[5f00::1]", "[3fff::1]",
        "[2001:db8::1]",
        // Private networks.
        "10.0.0.1", "10.255.255.255", "0xa000001", "012.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1",
        "3232235777", "[::ffff:10.0.0.1]", "[::ffff:192.168.1.1]", "100.64.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255",
        // Metadata services of clouds.
        "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.254.170.2",
        "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "168.63.129.16", "100.100.100.200",
        "192.0.0.192",
        // Host names.
        "localhost", "LOCALHOST", "LocalHost.", "localhost.", "metadata.google.internal", "127.0.0.1.names.example",
        "six.example", "both.example",
        // User names that look like hosts.
        "cdn.example.org@127.0.0.1", "cdn.example.org:80@127.0.0.1", "127.0.0.1@localhost", "@127.0.0.1", ":@127.0.0.1",
        "cdn.example.org%40127.0.0.1", "cdn.example.org\\@127.0.0.1", "127.0.0.1\\", "cdn.example.org%2F@127.0.0.1",
        // Spaces and control characters, which some parsers drop.
        "127.0.0.1\t", "127.0.\t0.1", "127.0.0.1 ", "127.0.0.1%20", "127.0.0.1%09", "127.0.0.1%0d%0a",
    ]

    /// Host names that resolve to forbidden addresses, as libcurl's overrides.
    static func names(_ port: UInt16) -> [String] {
        [
            "metadata.google.internal:\(port):169.254.169.254", "127.0.0.1.names.example:\(port):127.0.0.1",
            "six.example:\(port):[::1]", "both.example:\(port):127.0.0.1,[::1]",
        ]
    }

    /// URLs that are hostile in another part than the host.
    static let others = [
        "HTTP://127.0.0.1:PORT/", "hTTp://LOCALHOST:PORT/", "http:///127.0.0.1:PORT/", "http:/127.0.0.1:PORT/",
        "http:\\\\127.0.0.1:PORT\\", "http:/\\127.0.0.1:PORT/", "http://127.0.0.1:PORT#@cdn.example.org/",
        "http://127.0.0.1:PORT?@cdn.example.org/", "http://127.0.0.1:PORT/..", "http://127.0.0.1:PORT/a/%2e%2e/%2E/",
        "http://127.0.0.1:PORT/..%2f..%5c", "http://127.0.0.1:0/", "http://127.0.0.1:65536/", "http://127.0.0.1:-1/",
        "http://127.0.0.1:+PORT/", "http://127.0.0.1:PORT:PORT/", "http://127.0.0.1: PORT/", "https://127.0.0.1:PORT/",
        "file:///etc/passwd", "FILE:///etc/passwd", "file://localhost/etc/passwd", "file://127.0.0.1:PORT/",
        "ftp://127.0.0.1:PORT/a", "ftps://127.0.0.1:PORT/a", "gopher://127.0.0.1:PORT/_GET",
        "dict://127.0.0.1:PORT/stat",
        "ldap://127.0.0.1:PORT/", "tftp://127.0.0.1:PORT/a", "telnet://127.0.0.1:PORT/", "ws://127.0.0.1:PORT/",
        "smb://127.0.0.1/a/b", "scp://127.0.0.1:PORT/a", "imap://127.0.0.1:PORT/", "rtsp://127.0.0.1:PORT/",
        "mqtt://127.0.0.1:PORT/a", "view-source:http://127.0.0.1:PORT/",
    ]

    static func all(_ port: UInt16) -> [String] {
        (hosts.map { "http://\($0):PORT/a.png" } + others).map { $0.replacing("PORT", with: "\(port)") }
    }
}

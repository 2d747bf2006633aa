import Testing

@testable import thumbcached

@Suite struct UnitsTests {
    @Test(arguments: [
        ("0", 0), ("1B", 1), ("5KiB", 5120), ("64MiB", 67_108_864), ("1GiB", 1_073_741_824), ("007B", 7),
    ])
    func `a size is a whole number and its unit`(_ text: String, _ bytes: Int) {
        #expect(ByteSize.parse(text) == bytes)
    }

    @Test(arguments: ["", "1", "B", "1.5MiB", "-1B", "+1B", "1 MiB", "1mib", "1MB", "1MiBs", "٣B", "99999999999GiB"])
    func `anything else is no size`(_ text: String) {
        #expect(ByteSize.parse(text) == nil)
    }

    @Test(arguments: [
        ("0s", 0), ("250ms", 250), ("2s", 2000), ("5m", 300_000), ("1h", 3_600_000), ("1d", 86_400_000),
    ])
    func `a time is a whole number and its unit`(_ text: String, _ milliseconds: Int) {
        #expect(TimeSpan.parse(text) == milliseconds)
        #expect(TimeSpan.format(milliseconds) == text)
    }

    @Test(arguments: ["", "0", "5", "s", "1.5s", "1 s", "1S", "1w", "9223372036854775807d"])
    func `anything else is no time`(_ text: String) {
        #expect(TimeSpan.parse(text) == nil)
    }

    @Test(arguments: [(0, "0"), (1, "1B"), (1536, "1536B"), (2048, "2KiB"), (1 << 30, "1GiB"), (3 << 29, "1536MiB")])
    func `a size is shown in the largest unit that leaves it whole`(_ bytes: Int, _ text: String) {
        #expect(ByteSize.format(bytes) == text)
    }

    @Test(arguments: ["127.0.0.1:1", "127.255.255.254:65535", "[::1]:9187"])
    func `a loopback address is accepted`(_ text: String) {
        #expect(LoopbackAddress(text)?.description == text)
    }

    @Test(arguments: [
        "", "9187", ":9187", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:+1", "::1:9187",
        "[::1]", "[::]:1", "[::ffff:127.0.0.1]:1", "[127.0.0.1]:1", "10.0.0.1:1", "127.1:1", "0x7f.0.0.1:1",
        "localhost:1", "127.0.0.1.example.org:1",
    ])
    func `what others could reach is refused`(_ text: String) {
        #expect(LoopbackAddress(text) == nil)
    }
}

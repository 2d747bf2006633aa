import LinuxSupport
import Testing

@testable import thumbcached

@Suite struct UnitsTests {
    @Test(arguments: [
        ("0", 0), ("1B", 1), ("5KiB", 5120), ("64MiB", 67_108_864), ("1GiB", 1_073_741_824), ("007B", 7),
    ])
    func `a size is a whole number with a unit`(_ text: String, _ bytes: Int) {
        #expect(Quantity.size.parse(text) == bytes)
    }

    @Test(arguments: ["", "1", "B", "1.5MiB", "-1B", "+1B", "1 MiB", "1mib", "1MB", "1MiBs", "٣B", "99999999999GiB"])
    func `other texts are not sizes`(_ text: String) {
        #expect(Quantity.size.parse(text) == nil)
    }

    @Test(arguments: [
        ("0s", 0), ("250ms", 250), ("2s", 2000), ("5m", 300_000), ("1h", 3_600_000), ("1d", 86_400_000),
    ])
    func `a time is a whole number with a unit`(_ text: String, _ milliseconds: Int) {
        #expect(Quantity.time.parse(text) == milliseconds)
        #expect(Quantity.time.format(milliseconds) == text)
    }

    @Test(arguments: ["", "0", "5", "s", "1.5s", "1 s", "1S", "1w", "9223372036854775807d"])
    func `other texts are not times`(_ text: String) {
        #expect(Quantity.time.parse(text) == nil)
    }

    @Test(arguments: [(0, "0"), (1, "1B"), (1536, "1536B"), (2048, "2KiB"), (1 << 30, "1GiB"), (3 << 29, "1536MiB")])
    func `a size is formatted in the largest unit that keeps it whole`(_ bytes: Int, _ text: String) {
        #expect(Quantity.size.format(bytes) == text)
    }
}

import Testing

@testable import DiskStore

@Test func `names are read as written and have one spelling`() throws {
    let digits = "0123456789abcdef00ff00ff00ff00ff0123456789abcdef00ff00ff00ff00ff"
    let profile = try #require(HashedName(hex: Array(digits.utf8)))
    #expect(profile.fileName.text == digits)
    #expect(profile.bucket == 0x01)
    for size in [0, 1, 9, 10, 64, 99, 100, 999, 1000, 4096, 9999, 10_000, 65_535] as [UInt16] {
        let address = EntryAddress(profile: profile, code: size)
        #expect(address.fileName.text == "\(digits).\(size)")
        #expect(EntryAddress(address.fileName) == address)
    }
    let wrong = [
        "", digits, digits + ".", digits + ".01", digits + ".+1", digits + ".65536", digits + ".1 ", digits + "x1",
        digits.uppercased() + ".1", String(digits.dropLast()) + ".1", digits + "0.1", digits + ".-0",
    ]
    for name in wrong { #expect(EntryAddress(FileName(name)) == nil, "\(name)") }

    let generation = GenerationName(
        user: profile, generation: try #require(GenerationID(hex: Array(digits.utf8.prefix(32)))))
    #expect(generation.fileName.text == "\(digits).\(digits.prefix(32))")
    #expect(GenerationName(generation.fileName) == generation)
    for name in ["", digits, digits + ".", digits + "." + digits, "." + digits.prefix(32)] {
        #expect(GenerationName(FileName(name)) == nil)
    }
    for bucket in UInt8.min...UInt8.max { #expect(BucketName.bucket(of: BucketName.fileName(bucket)) == bucket) }
    for name in ["", "0", "000", "0A", "g0", " 0"] { #expect(BucketName.bucket(of: FileName(name)) == nil) }
}

@Test func `the directory of a uid has one spelling`() {
    #expect(UInt32(name: "0") == 0)
    #expect(UInt32(name: "4294967295") == 4_294_967_295)
    for name in ["", "-1", "+1", "01", "1 ", "4294967296", "root", "reserve"] {
        #expect(UInt32(name: FileName(name)) == nil)
    }
}

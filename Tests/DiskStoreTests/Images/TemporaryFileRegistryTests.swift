import Testing

@testable import DiskStore

/// The registration of temporary files, which writers and purges use at once.
@Suite struct TemporaryFileRegistryTests {
    private let registry = TemporaryFileRegistry()

    private func name<let count: Int>(_ byte: UInt8) -> HexName<count> {
        Array(repeating: byte, count: 8 * count).withUnsafeBytes { HexName($0) }
    }

    /// A purge looks for the file, its writer creates it and asks, and then the purge unregisters it: without an answer
    /// of false, the image would be written after the receipt.
    @Test func `F78, I3: a file may not be written once a purge looks for it`() {
        let generation = Generation(number: 1, owner: HashedOwner(uid: 1, user: name(1)), id: name(2), isNew: true)
        registry.register("tmp.bob", of: name(3), in: generation)
        registry.register("tmp.eve", of: name(4), in: generation)
        #expect(registry.mayWrite("tmp.bob"))
        #expect(registry.withdrawFiles(of: name(3)) == ["tmp.bob"])
        #expect(!registry.mayWrite("tmp.bob") && registry.mayWrite("tmp.eve"))
        // A purge that could not remove the file finds it again.
        #expect(registry.withdrawFiles(of: name(3)) == ["tmp.bob"])
        registry.unregister("tmp.bob")
        #expect(!registry.mayWrite("tmp.bob"))
    }
}

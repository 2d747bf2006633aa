import CLinux
import CacheCore
import DiskStore
import Foundation
import Testing

/// A foreign file in place of an entry.
enum Plant: String, CaseIterable, CustomTestStringConvertible {
    case link, danglingLink, fifo, socket, hardLink, directory, fullDirectory
    var testDescription: String { rawValue }

    /// - Parameter victim: a file that must not change.
    func put(at path: String, victim: String) throws {
        let manager = FileManager.default
        switch self {
        case .link: try manager.createSymbolicLink(atPath: path, withDestinationPath: victim)
        case .danglingLink: try manager.createSymbolicLink(atPath: path, withDestinationPath: "/nonexistent/x")
        case .fifo: #expect(mkfifo(path, 0o600) == 0)
        case .socket: #expect(mknod(path, S_IFSOCK | 0o600, 0) == 0)
        case .hardLink: try manager.linkItem(atPath: victim, toPath: path)
        case .directory: try manager.createDirectory(atPath: path, withIntermediateDirectories: false)
        case .fullDirectory:
            try manager.createDirectory(atPath: path + "/deep/deeper", withIntermediateDirectories: true)
            try manager.linkItem(atPath: victim, toPath: path + "/deep/deeper/file")
        }
    }
}

private func exists(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0
}

@Test(arguments: Plant.allCases)
func `F24, F26: a foreign file in place of an entry is not followed, does not block, and is removed`(plant: Plant)
    throws
{
    let tree = try TestTree()
    let victim = tree.root + "/victim"
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        // Keeps the bucket from being removed.
        try generationStore.put(imageKey("bob", 1), testImage(1))
        let path = try #require(tree.entries.first)
        // The victim is a valid entry, so that only the kind of file is wrong.
        try FileManager.default.moveItem(atPath: path, toPath: victim)
        let before = try Data(contentsOf: URL(fileURLWithPath: victim))
        try plant.put(at: path, victim: victim)
        #expect(try generationStore.bytes(imageKey("bob")) == nil)
        #expect(!exists(path))
        #expect(store.counters[.rejectedEntries] == 1)

        try plant.put(at: path, victim: victim)
        try generationStore.put(imageKey("bob"), testImage(2))
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
        store.maintain()
        #expect(try Data(contentsOf: URL(fileURLWithPath: victim)) == before)
        #expect(tree.files(under: tree.cache + "/trash").isEmpty)
    }
}

@Test(arguments: ["users", "users/1000", "users/1000/GENERATION", "users/1000/GENERATION/BUCKET"])
func `F24: a link in place of a directory is not followed and its target stays`(place: String) throws {
    let tree = try TestTree()
    let target = tree.root + "/target"
    var path = tree.cache + "/" + place
    try tree.withStore { store in
        try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        let parts = try #require(tree.entries.first).dropFirst(tree.cache.count + 1).split(separator: "/")
        path = path.replacingOccurrences(of: "GENERATION", with: String(parts[2]))
            .replacingOccurrences(of: "BUCKET", with: String(parts[3]))
        try FileManager.default.moveItem(atPath: path, toPath: target)
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
    }
    let before = tree.files(under: target)
    try tree.withStore { store in
        let generationStore = try #require(try store.load(alice)).generationStore
        #expect(try generationStore.bytes(imageKey("bob")) == nil)
        try generationStore.put(imageKey("bob"), testImage(2))
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
        store.maintain()
        generationStore.close()
        try store.commitLogout(alice)
        generationStore.discard()
        store.maintain()
        #expect(tree.files(under: target) == before)
        #expect(before.count == 1)
        #expect(tree.entries.isEmpty)
    }
}

@Test func `F24: a logout does not overwrite the target of a link in place of the key file`() throws {
    let tree = try TestTree()
    let victim = URL(fileURLWithPath: tree.root + "/victim")
    try Data([1, 2, 3]).write(to: victim)
    try tree.withStore { store in
        _ = try store.commitLogin(alice, .plain)
        let path = try #require(tree.keyFiles.first)
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: victim.path)
        try store.commitLogout(alice)
        #expect(!exists(path))
        #expect(try Data(contentsOf: victim) == Data([1, 2, 3]))
    }
}

@Test func `F24: a link in place of the lock stops the start and does not create its target`() throws {
    let tree = try TestTree()
    try tree.makeDirectories(tree.configuration())
    let target = tree.root + "/target"
    try FileManager.default.createSymbolicLink(atPath: tree.cache + "/lock", withDestinationPath: target)
    #expect(throws: StoreStartError.self) { try tree.withStore { _ in } }
    #expect(!exists(target))
}

@Test func `F24: a link in place of the trash is not followed`() throws {
    let tree = try TestTree()
    let target = tree.root + "/target"
    try FileManager.default.createDirectory(atPath: target, withIntermediateDirectories: true)
    try Data([1]).write(to: URL(fileURLWithPath: target + "/file"))
    try tree.withStore { $0.maintain() }
    try FileManager.default.removeItem(atPath: tree.cache + "/trash")
    try FileManager.default.createSymbolicLink(atPath: tree.cache + "/trash", withDestinationPath: target)
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        generationStore.close()
        generationStore.discard()
        store.maintain()
        #expect(tree.files(under: target) == [target + "/file"])
    }
}

@Test func `F25: swapping directories for links does not lead deletion out of the trash`() throws {
    let tree = try TestTree()
    let target = tree.root + "/target"
    let system = FaultySystem()
    try FileManager.default.createDirectory(atPath: target, withIntermediateDirectories: true)
    for number in 0..<50 { try Data([1]).write(to: URL(fileURLWithPath: target + "/\(number)")) }
    try tree.withStore(system: system) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<50 { try generationStore.put(imageKey("profile \(number)"), testImage(1)) }
        generationStore.close()
        try store.commitLogout(alice)
        generationStore.discard()
        // Before every call, each directory in the trash is swapped with a link to the target.
        let link = tree.root + "/link"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target)
        let trash = tree.cache + "/trash"
        system.plan { _, number, _ in
            guard number < 2_000 else { return nil }
            for name in (try? FileManager.default.contentsOfDirectory(atPath: trash)) ?? [] {
                _ = clinux_rename_exchange(AT_FDCWD, trash + "/" + name, AT_FDCWD, link)
            }
            return nil
        }
        store.maintain()
        system.heal()
        store.maintain()
        #expect(tree.files(under: target).count == 50)
        #expect(try FileManager.default.contentsOfDirectory(atPath: trash).isEmpty)
    }
}

@Test func `F26: counting a generation removes foreign files and does not count them`() throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
    let entry = try #require(tree.entries.first)
    let bucket = (entry as NSString).deletingLastPathComponent
    let generation = (bucket as NSString).deletingLastPathComponent
    for place in [bucket + "/x", bucket + "/x.64", entry + "0.tmp", generation + "/zz", generation + "/file"] {
        try Data([1]).write(to: URL(fileURLWithPath: place))
    }
    try Data([1]).write(to: URL(fileURLWithPath: generation + "/tmp.0123456789abcdef.1"))
    #expect(mkfifo(bucket + "/fifo", 0o600) == 0)
    try tree.withStore { store in
        let generationStore = try #require(try store.load(alice)).generationStore
        #expect(generationStore.usage == nil)
        store.maintain()
        #expect(generationStore.usage?.images == 1)
        #expect(tree.entries == [entry])
        #expect(!exists(bucket + "/fifo"))
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
    }
}

@Test func `F26: a foreign file of the largest size is removed and not counted`() throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
    let entry = try #require(tree.entries.first)
    func plant(_ path: String) throws {
        let descriptor = open(path, O_CREAT | O_RDWR, 0o600)
        defer { close(descriptor) }
        // As large as the file system allows.
        try #require(ftruncate(descriptor, .max) == 0 || ftruncate(descriptor, 1 << 43) == 0)
    }
    let name = entry.dropLast(1)
    for size in [1, 2, 3] { try plant("\(name)\(size)") }
    try tree.withStore { store in
        store.maintain()
        #expect(tree.entries == [entry])
        #expect(store.usageTotal.images == 1)
        #expect(store.trashUsage == Usage())
        // The same for files planted later, in place of an image.
        let generationStore = try #require(try store.load(alice)).generationStore
        for size: UInt16 in [1, 2, 3] {
            try generationStore.put(imageKey("bob", size), testImage(1))
            try plant("\(name)\(size)")
            #expect(try generationStore.bytes(imageKey("bob", size)) == nil)
        }
        #expect(tree.entries == [entry])
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        #expect(store.usageTotal.bytes >= 0)
    }
}

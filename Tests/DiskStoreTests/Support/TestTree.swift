import CacheCore
import DiskStore
import Foundation
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

/// Empty directories for a store, removed with the last reference, and stores in them.
final class TestTree: Sendable {
    let root: String
    let buffers = BufferPool()
    let clock = NIOLockedValueBox(Int64(time(nil)))
    /// Called between steps of maintenance by stores opened later.
    let yield = NIOLockedValueBox<YieldToOthers>({})

    var cache: String { root + "/cache" }
    var state: String { root + "/state" }
    var runtime: String { root + "/run" }

    /// - Parameter place: the parent directory; nil for the default.
    init(within place: String? = nil) throws {
        // On a tmpfs if possible, because tests create and kill thousands of stores.
        let memory = "/dev/shm"
        let usual = access(memory, W_OK) == 0 ? memory : FileManager.default.temporaryDirectory.path
        var template = Array(((place ?? usual) + "/thumbcached-XXXXXX").utf8CString)
        guard let made = mkdtemp(&template) else { throw SystemError(.makeDirectory, errno) }
        root = String(cString: made)
    }

    deinit {
        do {
            try FileManager.default.removeItem(atPath: root)
        } catch {
            print("could not remove \(root): \(error)")
        }
    }

    func configuration(
        keys: DiskStoreConfiguration.KeyStorage = .disk, quota: Int = 1 << 30, userQuota: Int = 64 << 20
    ) -> DiskStoreConfiguration {
        DiskStoreConfiguration(
            cacheDirectory: cache, stateDirectory: state, runtimeDirectory: runtime, keys: keys, quota: quota,
            userQuota: userQuota)
    }

    /// Creates the directories that exist before a daemon opens its store.
    func makeDirectories(_ configuration: DiskStoreConfiguration) throws {
        let runtime = configuration.keys == .runtime ? configuration.runtimeDirectory : nil
        for path in [configuration.cacheDirectory, configuration.stateDirectory, runtime].compactMap({ $0 })
        where path.hasPrefix("/") {
            try FileManager.default.createDirectory(
                atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        }
    }

    func open(
        _ configuration: DiskStoreConfiguration? = nil, system: any FileSystem = LinuxFileSystem(),
        random: any RandomSource = SecureRandom()
    ) throws -> DiskStore {
        try makeDirectories(configuration ?? self.configuration())
        // Other tests start processes, which hold a copy of every descriptor between fork and exec, including that of a
        // lock just released.
        for _ in 0..<100 {
            do {
                return try openOnce(configuration, system: system, random: random)
            } catch let error as StoreStartError where error.description.contains("holds the lock") {
                usleep(2_000)
            }
        }
        return try openOnce(configuration, system: system, random: random)
    }

    private func openOnce(
        _ configuration: DiskStoreConfiguration?, system: any FileSystem, random: any RandomSource
    ) throws -> DiskStore {
        try DiskStore(
            configuration: configuration ?? self.configuration(), system: system, random: random,
            now: { [clock] in clock.withLockedValue { $0 } }, pause: {},
            yield: yield.withLockedValue { $0 }, buffers: buffers, log: Logger(label: "test") { _ in SilentLog() })
    }

    /// Runs `body` with a store and shuts it down, as a daemon does.
    func withStore(
        _ configuration: DiskStoreConfiguration? = nil, system: any FileSystem = LinuxFileSystem(),
        _ body: (DiskStore) throws -> Void
    ) throws {
        let store = try open(configuration, system: system)
        defer { store.shutdown() }
        try body(store)
    }

    /// Paths of all plain files below a directory.
    func files(under directory: String? = nil) -> [String] {
        let start = directory ?? root
        return (FileManager.default.enumerator(atPath: start)?.allObjects as? [String] ?? [])
            .map { start + "/" + $0 }
            .filter { path in
                var status = stat()
                return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
            }
            .sorted()
    }

    /// Entry files.
    var entries: [String] { files(under: cache + "/users") }
    var keyFiles: [String] { files(under: state + "/keys").filter { !$0.hasSuffix("/reserve") } }
    var sessionFiles: [String] { files(under: state + "/sessions") }
    var temporaries: [String] {
        files().filter { $0.contains("/tmp.") || $0.hasSuffix(".tmp") }
    }
}

/// Records errors where nothing may be thrown, as in the plan of a ``FaultySystem``.
func expectSuccess(_ body: () throws -> Void) {
    do {
        try body()
    } catch {
        Issue.record(error)
    }
}

struct SilentLog: LogHandler {
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.critical
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }
    func log(event: LogEvent) {}
}

let alice = Owner(uid: 1000, user: OpaqueID("alice@example.org"))
let bob = Owner(uid: 1000, user: OpaqueID("bob@example.org"))
let carol = Owner(uid: 1001, user: OpaqueID("carol@example.org"))

func imageKey(_ profile: String, _ size: UInt16 = 0) -> ImageKey {
    ImageKey(profile: OpaqueID(profile), size: size)
}

extension LoginRecord {
    static let plain = LoginRecord(sessions: [OpaqueID("default")], loggedInAt: 1_700_000_000)
}

/// An image whose bytes are arbitrary, since the store does not interpret them.
func testImage(_ seed: UInt8, count: Int = 1000, url: String? = nil) -> Image {
    let bytes = ByteBuffer(bytes: (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ Int(seed) &* 31) })
    let digest = ImageDigest([UInt8](repeating: seed, count: 32))
    return Image(
        record: ImageRecord(
            shape: ImageShape(kind: .png, width: 64, height: 48),
            digest: digest ?? ImageDigest([UInt8](repeating: 0, count: 32))!,
            provenance: url.map(Provenance.url) ?? .put, freshness: Freshness(storedAt: 1_700_000_000, lifetime: nil)),
        bytes: ImageBytes(copying: bytes, framing: .bare))
}

extension GenerationStore {
    @discardableResult
    func put(_ imageKey: ImageKey, _ image: Image) throws -> Bool {
        defer { makeRoom(keeping: image.record.sourceDigest == nil ? imageKey : nil) }
        return try write(imageKey, image, isCurrent: { true }, committed: {})
    }

    @discardableResult
    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void = { _ in }) throws -> Usage {
        try remove(profiles, fence: fence, removed: { _ in })
    }

    func bytes(_ imageKey: ImageKey) throws -> [UInt8]? {
        try read(imageKey, framing: .bare).map { Array($0.bytes.image.readableBytesView) }
    }
}

extension Image {
    var content: [UInt8] { Array(bytes.image.readableBytesView) }
}

extension ReplyFraming {
    /// The framing of a bulk string.
    static let bulk = ReplyFraming(
        writePrefix: { count, room in
            let prefix = Array("$\(count)\r\n".utf8)
            UnsafeMutableRawBufferPointer(rebasing: room.suffix(prefix.count)).copyBytes(from: prefix)
            return prefix.count
        }, suffix: Array("\r\n".utf8))
}

extension CachedRead {
    var image: Image? { if case .image(let image) = self { image } else { nil } }
}

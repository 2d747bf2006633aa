import Foundation
import Glibc
import Testing

/// A store that a released version wrote, kept in `Tests/KeptStores/VERSION.tar.gz`.
///
/// The archive contains the directories of a ``Daemon`` named ``daemon``, and the file ``contents``.
struct KeptStore: CustomTestStringConvertible, Sendable {
    let version: String

    static let daemon = "daemon"
    private static let contents = "contents.json"
    static let directory = "\(Files.repository)/Tests/KeptStores"

    /// A login in the store.
    struct User: Codable {
        var uid: UInt32
        var name: String
        var sessions: [String]
        var images: [Image] = []
        /// Whether a pending-logout file ends this login at the next start.
        var isPendingLogout = false
    }

    struct Image: Codable {
        /// The arguments of GET after the user.
        var words: [String]
        var bytes: Data
    }

    static var all: [KeptStore] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return names.filter { $0.hasSuffix(suffix) }.sorted().map {
            KeptStore(version: String($0.dropLast(suffix.count)))
        }
    }

    private static let suffix = ".tar.gz"
    private var name: String { "\(version)\(Self.suffix)" }

    var testDescription: String { version }

    /// Extracts the store as one of the uid that runs the tests, and returns its logins.
    func extract(to machine: Machine) throws -> [User] {
        try machine.runSuccessfully([
            "tar", "--extract", "--no-same-owner", "--preserve-permissions", "--file",
            "\(Self.directory)/\(name)", "--directory", machine.directory,
        ])
        return try JSONDecoder().decode([User].self, from: Data(read(machine.path(Self.contents))))
    }

    /// Archives the store of a stopped daemon in a directory.
    func write(_ daemon: Daemon, holding users: [User], in directory: String) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        let machine = daemon.machine
        try encoder.encode(users).write(to: URL(fileURLWithPath: machine.path(Self.contents)))
        let members = [daemon.cache, daemon.state, daemon.pending].map {
            String($0.dropFirst(machine.directory.count + 1))
        }
        try machine.runSuccessfully(
            [
                "tar", "--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--file",
                "\(directory)/\(name)", "--directory", machine.directory, Self.contents,
            ] + members, environment: ["GZIP": "-9"])
    }
}

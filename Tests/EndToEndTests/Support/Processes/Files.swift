import Foundation
import Glibc

/// Reads to the end of the file, also in /proc, where a read returns at most a page and Foundation stops after a few.
func read(_ path: String) throws -> [UInt8] {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { throw Failure(systemCall: "open \(path)") }
    defer { close(file) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = Glibc.read(file, &buffer, buffer.count)
        guard count >= 0 else { throw Failure(systemCall: "read \(path)") }
        if count == 0 { return bytes }
        bytes += buffer[..<count]
    }
}

func readText(_ path: String) throws -> String { String(decoding: try read(path), as: UTF8.self) }

func write(_ bytes: [UInt8], to path: String) throws {
    try Data(bytes).write(to: URL(fileURLWithPath: path))
}

func write(_ text: String, to path: String) throws {
    try write([UInt8](text.utf8), to: path)
}

enum Files {
    /// The repository: the directory that holds Package.swift.
    static let repository = URL(fileURLWithPath: #filePath).resolvingSymlinksInPath()
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().path

    /// The build directory of these tests.
    static let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path

    /// The directory of the programs under test.
    static let programs = ProcessInfo.processInfo.environment["THUMBCACHED_PROGRAMS"] ?? built

    /// Paths of all regular files below a directory.
    static func under(_ directory: String) -> [String] {
        entries(under: directory).filter { (try? kind(of: $0)) == S_IFREG }
    }

    /// Paths of all entries below a directory. Entries that vanish meanwhile are skipped.
    static func entries(under directory: String) -> [String] {
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        var found: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name == "." || name == ".." { continue }
            let path = "\(directory)/\(name)"
            found.append(path)
            if (try? kind(of: path)) == S_IFDIR { found += entries(under: path) }
        }
        return found
    }

    /// `S_IFREG`, `S_IFDIR`, `S_IFSOCK` and so on.
    static func kind(of path: String) throws -> mode_t {
        var status = stat()
        guard lstat(path, &status) == 0 else { throw Failure(systemCall: "lstat \(path)") }
        return status.st_mode & S_IFMT
    }

    static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    static func makeExecutable(_ path: String) { chmod(path, 0o755) }
}

import CacheCore
import DiskStore
import Foundation
import Glibc

extension TestTree {
    /// Opens the store for inspection.
    /// - Parameter pause: called before each scan after the first; nothing waits.
    func inspection(
        _ configuration: DiskStoreConfiguration? = nil, system: any FileSystem = ReadOnlyFileSystem(),
        caller: UInt32 = geteuid(), pause: @escaping @Sendable (Int) -> Void = { _ in }
    ) throws -> StoreInspection {
        try StoreInspection(configuration ?? self.configuration(), system: system, caller: caller, pause: pause)
    }

    /// Returns the status of every file in the store without opening it.
    func everything() throws -> [String: [Int]] {
        var found: [String: [Int]] = [:]
        for name in [""] + (FileManager.default.enumerator(atPath: root)?.allObjects as? [String] ?? []) {
            var status = stat()
            guard lstat("\(root)/\(name)", &status) == 0 else { throw POSIXError(.EIO) }
            found[name] = [
                Int(status.st_ino), Int(status.st_size), Int(status.st_mode), Int(status.st_nlink),
                status.st_atim.tv_sec, status.st_atim.tv_nsec, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                status.st_ctim.tv_sec, status.st_ctim.tv_nsec,
            ]
        }
        return found
    }
}

extension StoreReport {
    /// The findings, each with the end of its path.
    func problems(in tree: TestTree) -> Set<String> {
        Set(findings.map { "\($0.problem.rawValue) \($0.path.dropFirst(tree.root.count + 1))" })
    }
}

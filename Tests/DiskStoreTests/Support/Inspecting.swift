import CacheCore
import DiskStore
import Foundation
import Glibc

extension TestTree {
    /// Looks the store over.
    /// - Parameter pause: comes before each look behind the first. Nothing waits.
    func inspection(
        _ configuration: DiskStoreConfiguration? = nil, system: any FileSystem = ReadOnlyFileSystem(),
        caller: UInt32 = geteuid(), pause: @escaping @Sendable (Int) -> Void = { _ in }
    ) throws -> StoreInspection {
        try StoreInspection(configuration ?? self.configuration(), system: system, caller: caller, pause: pause)
    }

    /// All that can be seen of a file without opening it, of every name in the store.
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
    /// What is wrong and where, by the end of the path.
    func problems(in tree: TestTree) -> Set<String> {
        Set(findings.map { "\($0.problem.rawValue) \($0.path.dropFirst(tree.root.count + 1))" })
    }
}

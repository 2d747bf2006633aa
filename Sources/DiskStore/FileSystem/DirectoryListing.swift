import CLinux
import Glibc
import LinuxSupport

struct DirectoryEntry {
    let name: FileName
    /// The kind, or nil if the file system does not report it.
    let kind: FileStatus.Kind?
}

extension Disk {
    /// Calls `body` for each name in a directory, until it returns false. Names that appear or disappear meanwhile may
    /// be reported or not.
    ///
    /// Costs one open and one call per 32 KiB of entries (about 300 names). A directory that has been removed since it
    /// was opened is empty (F73).
    func list(_ directory: Directory, _ body: (DirectoryEntry) throws -> Bool) throws {
        // Open it again: the reading position belongs to the open file, which other threads may be listing.
        guard let own = try unlessMissing({ () throws(SystemError) in try openDirectory(".", in: directory) }) else {
            return
        }
        try withUnsafeTemporaryAllocation(byteCount: 32 << 10, alignment: 8) { buffer in
            while true {
                let filled = try own.list(into: buffer)
                if filled == 0 { return }
                let entries = UnsafeRawBufferPointer(rebasing: buffer[..<filled])
                if try !forEachEntry(in: entries, body) { return }
            }
        }
    }

    func names(in directory: Directory, limit: Int = .max) throws -> [DirectoryEntry] {
        var found: [DirectoryEntry] = []
        try list(directory) { entry in
            found.append(entry)
            return found.count < limit
        }
        return found
    }

    private func forEachEntry(
        in entries: UnsafeRawBufferPointer, _ body: (DirectoryEntry) throws -> Bool
    ) throws -> Bool {
        var position = 0
        let lengthOffset = Int(CLINUX_DIRENT_LENGTH_OFFSET)
        let typeOffset = Int(CLINUX_DIRENT_TYPE_OFFSET)
        let nameOffset = Int(CLINUX_DIRENT_NAME_OFFSET)
        while position + nameOffset < entries.count {
            let length = Int(entries.loadUnaligned(fromByteOffset: position + lengthOffset, as: UInt16.self))
            guard length > nameOffset, position + length <= entries.count else { throw SystemError(.list, EIO) }
            let field = entries[(position + nameOffset)..<(position + length)]
            let name = UnsafeRawBufferPointer(rebasing: field.prefix { $0 != 0 })
            let kind: FileStatus.Kind? =
                switch Int(entries[position + typeOffset]) {
                case Int(DT_REG): .file
                case Int(DT_DIR): .directory
                case Int(DT_UNKNOWN): nil
                default: .other
                }
            position += length
            if name.elementsEqual([UInt8(ascii: ".")]) || name.elementsEqual("..".utf8) { continue }
            if try !body(DirectoryEntry(name: FileName(name), kind: kind)) { return false }
        }
        return true
    }
}

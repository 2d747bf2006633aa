/// What things take on the disk, as the quotas count them (F69): whole blocks, and an inode with the name that leads to it.
///
/// Computed from a file's length, so that it costs no call when one is written and is the same whenever it is asked. A file system
/// that packs small files takes less.
struct DiskCosts: Sendable {
    /// Bytes for an inode, its name in a directory, and what the file system keeps about the two.
    static let inode = 512

    /// Bytes that the file system hands out at once.
    let block: Int
    /// Bytes of the longest file that can be an entry.
    let longest: Int

    init(block: Int, longest: Int) {
        // A file system that says more counts in blocks and packs several files in one, or says something else.
        self.block = min(max(block, 512), 64 << 10)
        self.longest = longest
    }

    /// Bytes that a file of this length takes. Nothing where it is longer than any entry: then somebody has planted it, its length may
    /// be any number, and it was never counted.
    func file(_ length: Int64) -> Int {
        guard 0...Int64(longest) ~= length else { return 0 }
        return (Int(length) + block - 1) / block * block + Self.inode
    }

    /// Bytes that a directory takes.
    var directory: Int { block + Self.inode }
}

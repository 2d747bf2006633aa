import CLinux
import CRawCalls
import Glibc
import LinuxSupport
import Testing

/// Access to files from a confined thread.
@Suite(.enabled(if: Kernel.landlock >= 2, "Landlock 2 is not available"))
struct ConfinedFilesTests {
    private let scratch: Scratch

    init() throws { scratch = try Scratch() }

    @Test func `readable paths can be read and listed, and no others`() throws {
        let scratch = scratch
        let codes = try confined(Confinement(readable: [scratch.one], writable: [], sockets: .internet)) {
            [
                failureToOpen { open(scratch.one + "/file", O_RDONLY) },
                failureToOpen { open(scratch.one, O_RDONLY | O_DIRECTORY) },
                failureToOpen { open(scratch.one + "/file", O_WRONLY) },
                failureToOpen { open(scratch.one + "/made", O_WRONLY | O_CREAT, 0o600) },
                failure { unlink(scratch.one + "/file") },
                failure { mkdir(scratch.one + "/made", 0o700) },
                failureToOpen { open(scratch.two + "/file", O_RDONLY) },
                failureToOpen { open(scratch.two, O_RDONLY | O_DIRECTORY) },
                failureToOpen { open(scratch.one + "/../two/file", O_RDONLY) },
                failureToOpen { open("/etc/passwd", O_RDONLY) },
                failureToOpen { open("/proc/self/maps", O_RDONLY) },
            ]
        }
        #expect(codes == [0, 0] + Array(repeating: EACCES, count: 9))
    }

    @Test func `a single file can be readable`() throws {
        let scratch = scratch
        let codes = try confined(Confinement(readable: [scratch.one + "/file"], writable: [], sockets: .unix)) {
            [
                failureToOpen { open(scratch.one + "/file", O_RDONLY) },
                failureToOpen { open(scratch.one, O_RDONLY | O_DIRECTORY) },
            ]
        }
        #expect(codes == [0, EACCES])
    }

    @Test func `files can be written, truncated, linked and renamed across writable directories`() throws {
        let scratch = scratch
        let codes = try confined(Confinement(readable: [], writable: [scratch.one, scratch.two], sockets: .unix)) {
            [
                failureToOpen { open(scratch.one + "/made", O_RDWR | O_CREAT | O_EXCL, 0o600) },
                failure { truncate(scratch.one + "/made", 7) },
                failure { link(scratch.one + "/file", scratch.two + "/linked") },
                failure { rename(scratch.one + "/file", scratch.two + "/moved") },
                failure {
                    clinux_rename_exchange(AT_FDCWD, scratch.one + "/made", AT_FDCWD, scratch.two + "/moved")
                },
                failure { unlink(scratch.two + "/moved") },
                failure { mkdir(scratch.two + "/made", 0o700) },
                failure { rmdir(scratch.two + "/made") },
            ]
        }
        #expect(codes == Array(repeating: 0, count: 8))
    }

    @Test func `files cannot leave writable directories, and devices cannot be created`() throws {
        let scratch = scratch
        let codes = try confined(Confinement(readable: [], writable: [scratch.one], sockets: .unix)) {
            [
                failure { rename(scratch.one + "/file", scratch.two + "/moved") },
                failure { link(scratch.one + "/file", scratch.two + "/linked") },
                failure { truncate(scratch.two + "/file", 0) },
                failure { mknod(scratch.one + "/device", S_IFCHR | 0o600, 0x103) },
            ]
        }
        // Across directories, Landlock may report EXDEV, so that programs copy instead (landlock(7)).
        #expect(codes.prefix(2).allSatisfy { [EXDEV, EACCES].contains($0) })
        #expect(codes.dropFirst(2) == [EACCES, EACCES])
    }

    /// Landlock does not cover these calls.
    @Test(arguments: [true, false])
    func `modes, owners and attributes cannot be changed even in writable directories`(_ isWritable: Bool) throws {
        let names = [
            "fchmod", "fchmodat", "fchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "removexattr",
            "lremovexattr", "fremovexattr",
        ]
        let scratch = scratch
        let confinement = Confinement(
            readable: [scratch.two], writable: isWritable ? [scratch.one] : [], sockets: .internet)
        let codes = try confined(confinement) {
            [scratch.one, scratch.two].map { directory in failure { chmod(directory + "/file", 0o644) } }
                + names.map { raw_call(raw_call_number($0), -1, -1, -1) }
        }
        #expect(codes == Array(repeating: EPERM, count: 2 + names.count))
    }

    /// The store records uses in the times of its files.
    @Test(arguments: [true, false])
    func `times can be set of open files only, and only if a path is writable`(_ isWritable: Bool) throws {
        let scratch = scratch
        let confinement = Confinement(
            readable: [scratch.one], writable: isWritable ? [scratch.one] : [], sockets: .unix)
        let upperHalf = 1 << 32
        let codes = try confined(confinement) {
            let file = open(scratch.one + "/file", O_RDONLY)
            defer { close(file) }
            return [
                failure { futimens(file, nil) }, failure { utimensat(AT_FDCWD, scratch.one + "/file", nil, 0) },
                raw_call(raw_call_number("utimensat"), Int(file), upperHalf, 0),
            ]
        }
        #expect(codes == [isWritable ? 0 : EPERM, EPERM, EPERM])
    }

    @Test func `a missing readable path is skipped, and a missing writable path is an error`() throws {
        let missing = scratch.path + "/missing"
        let code = try confined(Confinement(readable: [missing, "/etc/passwd/x"], writable: [], sockets: .unix)) {
            failureToOpen { open("/etc/passwd", O_RDONLY) }
        }
        #expect(code == EACCES)
        #expect(throws: SystemError("open \(missing)", code: ENOENT)) {
            try confined(Confinement(readable: [], writable: [missing], sockets: .unix)) {}
        }
    }

    @Test func `no descriptor is left open`() throws {
        try confined(Confinement(readable: [scratch.one], writable: [scratch.two + "/file"], sockets: .unix)) {}
        // Of the whole process; other tests may open files meanwhile.
        let left = (0..<1024).compactMap { (descriptor: Int) -> String? in
            var target = [CChar](repeating: 0, count: 4096)
            let count = readlink("/proc/self/fd/\(descriptor)", &target, target.count)
            guard count > 0 else { return nil }
            return String(decoding: target.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
        #expect(!left.isEmpty)
        #expect(left.filter { $0.hasPrefix(scratch.path) } == [])
    }
}

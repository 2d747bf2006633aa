import CLinux
import Glibc
import LinuxSupport
import Testing

@Suite struct ProgramPagesTests {
    @Test func `released pages of libraries are not mapped until they are read again`() throws {
        // A function of libm that nothing else uses.
        let function = try #require(dlsym(nil, "jnl"))
        let start = function.load(as: UInt8.self)
        #expect(try isMapped(function))
        // Other threads may use a page beside it, and the kernel maps several pages at once.
        var wasUnmapped = false
        for _ in 0..<1_000 where !wasUnmapped {
            clinux_release_program_pages()
            wasUnmapped = try !isMapped(function)
        }
        #expect(wasUnmapped)
        #expect(function.load(as: UInt8.self) == start)
        #expect(try isMapped(function))
    }

    /// Whether the page of an address is mapped: proc_pid_pagemap(5).
    private func isMapped(_ address: UnsafeMutableRawPointer) throws -> Bool {
        let file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw SystemError("open /proc/self/pagemap") }
        defer { close(file) }
        var entry = UInt64()
        let offset = UInt(bitPattern: address) / UInt(sysconf(CInt(_SC_PAGESIZE))) * 8
        guard pread(file, &entry, 8, off_t(offset)) == 8 else { throw SystemError("read /proc/self/pagemap") }
        return entry >> 63 == 1
    }
}

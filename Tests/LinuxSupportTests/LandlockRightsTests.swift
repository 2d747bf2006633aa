import CLinux
import Glibc
import Testing

@testable import LinuxSupport

/// The rights restricted in each version of Landlock, and the limitations reported.
struct LandlockRightsTests {
    @Test(
        arguments: [
            (1, 4, 0x1fff, 0, 0), (2, 4, 0x3fff, 0, 0), (3, 3, 0x7fff, 0, 0), (4, 2, 0x7fff, 1, 0),
            (5, 1, 0xffff, 1, 0),
            (6, 0, 0xffff, 1, 3), (99, 0, 0xffff, 1, 3),
        ] as [(CInt, Int, UInt64, UInt64, UInt64)])
    func `each version restricts the rights that it supports`(
        version: CInt, missing: Int, files: UInt64, tcp: UInt64, scopes: UInt64
    ) {
        let rights = LandlockRights(version: version, sockets: .internet)
        #expect(rights.missingFeatures.count == missing)
        #expect(rights.files == files)
        #expect(rights.tcp == tcp)
        #expect(rights.scopes == scopes)
        #expect(rights.allowsRenames == (version >= 2))
        // The kernel rejects rules that grant rights outside the ruleset.
        #expect(rights.writing & ~files == 0 && rights.reading & ~files == 0)
    }

    @Test func `the daemon has no TCP and can connect to abstract sockets`() {
        let rights = LandlockRights(version: 6, sockets: .unix)
        #expect(rights.tcp == CLINUX_LANDLOCK_BIND_TCP | CLINUX_LANDLOCK_CONNECT_TCP)
        #expect(rights.scopes == CLINUX_LANDLOCK_SCOPE_SIGNALS)
    }

    @Test func `executing and devices are never allowed`() {
        let writing = LandlockRights(version: 99, sockets: .unix).writing
        let never =
            CLINUX_LANDLOCK_EXECUTE | CLINUX_LANDLOCK_MAKE_CHAR | CLINUX_LANDLOCK_MAKE_BLOCK | CLINUX_LANDLOCK_IOCTL_DEV
        #expect(writing == 0xffff & ~never)
    }
}

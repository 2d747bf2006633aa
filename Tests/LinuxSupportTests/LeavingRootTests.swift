import CLinux
import CRawCalls
import Glibc
import LinuxSupport
import Testing

/// In processes of their own: who somebody is, and whether they may be looked at, holds for all threads.
struct LeavingRootTests {
    @Test(.enabled(if: geteuid() == 0, "only root leaves root")) func `root becomes nobody, for good`() async {
        await #expect(processExitsWith: .success) {
            try leaveRoot()
            #expect(getuid() != 0 && geteuid() != 0 && getgid() != 0 && getegid() != 0)
            #expect(getgroups(0, nil) == 0)
            #expect(failure { clinux_set_user(0) } == EPERM)
            #expect(failure { clinux_set_group(0) } == EPERM)
            // The other threads, too, which Swift Testing has some of.
            let user = getuid()
            #expect(try onThread { getuid() } == user)
            // Twice is as good as once.
            try leaveRoot()
            #expect(getuid() == user)
        }
    }

    @Test func `anybody else stays who they are`() async {
        await #expect(processExitsWith: .success) {
            if geteuid() == 0 { try #require(clinux_set_group(4001) == 0 && clinux_set_user(4001) == 0) }
            let (user, group) = (getuid(), getgid())
            try leaveRoot()
            #expect(getuid() == user && geteuid() == user && getgid() == group)
        }
    }

    @Test func `a process becomes undumpable, and cannot take it back once it is confined`() async {
        await #expect(processExitsWith: .success) {
            try becomeUndumpable()
            #expect(raw_is_dumpable() == 0)
            #expect(
                try confined(Confinement(readable: [], writable: [], sockets: .unix)) {
                    raw_call(raw_call_number("prctl"), 4, 1, 0)
                } == EPERM)
        }
    }
}

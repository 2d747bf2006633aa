import CLinux
import CRawCalls
import Glibc
import LinuxSupport
import Testing

/// Each runs in a process of its own, because ids and dumpability apply to all threads.
struct LeavingRootTests {
    @Test(.enabled(if: geteuid() == 0, "requires root")) func `root becomes an unprivileged user irrevocably`() async {
        await #expect(processExitsWith: .success) {
            try leaveRoot()
            #expect(getuid() != 0 && geteuid() != 0 && getgid() != 0 && getegid() != 0)
            #expect(getgroups(0, nil) == 0)
            #expect(failure { clinux_set_user(0) } == EPERM)
            #expect(failure { clinux_set_group(0) } == EPERM)
            // Applies to other threads, too.
            let user = getuid()
            #expect(try onThread { getuid() } == user)
            // Idempotent.
            try leaveRoot()
            #expect(getuid() == user)
        }
    }

    @Test func `other users keep their ids`() async {
        await #expect(processExitsWith: .success) {
            if geteuid() == 0 { try #require(clinux_set_group(4001) == 0 && clinux_set_user(4001) == 0) }
            let (user, group) = (getuid(), getgid())
            try leaveRoot()
            #expect(getuid() == user && geteuid() == user && getgid() == group)
        }
    }

    @Test func `a confined process cannot become dumpable again`() async {
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

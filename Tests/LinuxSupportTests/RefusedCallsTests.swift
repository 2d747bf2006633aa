import CLinux
import CRawCalls
import Glibc
import LinuxSupport
import Testing

/// System calls that the seccomp filter rejects; all files are readable and writable.
struct RefusedCallsTests {
    private static let daemon = Confinement(readable: [], writable: ["/"], sockets: .unix)
    private static let fetcher = Confinement(readable: [], writable: ["/"], sockets: .internet)

    /// The arguments have no effect if a call reaches the kernel: bad addresses and invalid numbers.
    @Test(arguments: [daemon, fetcher])
    func `calls for programs, other processes, mounts, ids and the machine are rejected`(_ as: Confinement) throws {
        let names = [
            "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise",
            "process_mrelease", "kcmp", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "tkill", "mount", "umount2",
            "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "mount_setattr", "pivot_root",
            "chroot", "unshare", "setns", "open_by_handle_at", "name_to_handle_at", "fanotify_init", "bpf",
            "perf_event_open", "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "keyctl",
            "add_key", "request_key", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid",
            "setfsuid", "setfsgid", "setgroups", "capset", "init_module", "finit_module", "delete_module",
            "kexec_load", "reboot", "swapon", "swapoff", "sethostname", "setdomainname", "settimeofday",
            "clock_settime", "adjtimex", "clock_adjtime", "personality", "acct", "quotactl", "quotactl_fd", "syslog",
        ]
        let allowed = try confined(`as`) {
            names.filter { raw_call(raw_call_number($0), -1, -1, -1) != EPERM }
        }
        #expect(names.allSatisfy { raw_call_number($0) >= 0 })
        #expect(allowed == [])
    }

    @Test func `calls are rejected by the lower half of an argument`() throws {
        let high = 1 << 32
        let calls: [(name: String, Int, Int, code: CInt)] = [
            ("clone", 0x1000_0000, 0, EPERM), ("clone", 0x4000_0000 | high, 0, EPERM),
            ("clone3", 0, 0, ENOSYS), ("ioctl", -1, 0x5412, EPERM), ("ioctl", -1, 0x541C | high, EPERM),
            ("ioctl", -1, 0x8901, EPERM), ("ioctl", -1, 0x8902, EPERM), ("prctl", 4, 1, EPERM),
            ("prctl", 4 | high, 1, EPERM), ("prctl", 0x5961_6d61, -1, EPERM), ("fcntl", -1, 8, EPERM),
            ("fcntl", -1, 15, EPERM), ("fcntl", -1, 1, EBADF), ("ioctl", -1, 0x541B, EBADF),
        ]
        let codes = try confined(Self.daemon) {
            calls.map { raw_call(raw_call_number($0.name), $0.1, $0.2, 0) }
        }
        #expect(codes == calls.map(\.code))
    }

    @Test func `calls newer than the list and those of x32 fail with ENOSYS`() throws {
        let newest = raw_call_number("set_mempolicy_home_node")
        let codes = try confined(Self.daemon) {
            [
                raw_call(newest, -1, -1, -1), raw_call(newest + 1, -1, -1, -1), raw_call(10_000, -1, -1, -1),
                raw_call(0x4000_0000 | raw_call_number("getpid"), 0, 0, 0),
            ]
        }
        #expect(codes[0] != ENOSYS)
        #expect(codes.dropFirst() == [ENOSYS, ENOSYS, ENOSYS])
    }

    @Test func `signals can be sent to the own process only`() throws {
        let bystander = try Bystander()
        let codes = try confined(Self.daemon) {
            [
                failure { kill(bystander.process, 0) }, failure { kill(getppid(), 0) }, failure { kill(0, 0) },
                failure { kill(-1, 0) },
                raw_call(raw_call_number("tgkill"), Int(bystander.process), Int(bystander.process), 0),
                raw_call(raw_call_number("rt_sigqueueinfo"), Int(bystander.process), 0, 0),
                raw_call(raw_call_number("rt_tgsigqueueinfo"), Int(bystander.process), Int(bystander.process), 0),
                raw_call(raw_call_number("prlimit64"), Int(bystander.process), 0, 0),
            ]
        }
        #expect(codes == Array(repeating: EPERM, count: 8))
        // The calls of abort(3), without its end.
        let own = try confined(Self.daemon) {
            [
                raise(0), failure { kill(getpid(), 0) }, pthread_kill(pthread_self(), 0),
                raw_call(raw_call_number("prlimit64"), 0, 0, 0),
                raw_call(raw_call_number("prlimit64"), Int(getpid()), 0, 0),
            ]
        }
        #expect(own == [0, 0, 0, 0, 0])
    }

    @Test func `posix_spawn cannot start a program`() throws {
        let code = try confined(Self.fetcher) { () -> CInt in
            var process = pid_t()
            let arguments = [strdup("true"), nil]
            defer { for argument in arguments { free(argument) } }
            return posix_spawn(&process, "/bin/true", nil, nil, arguments, nil)
        }
        #expect(code == EPERM)
    }

    @Test func `threads started later are confined`() throws {
        let codes = try confined(Self.daemon) {
            try onThread { [raw_gains_no_privileges(), raw_call(raw_call_number("execve"), -1, -1, -1)] }
        }
        #expect(codes == [1, EPERM])
        #expect(raw_gains_no_privileges() == 0)
    }

    @Test func `a system call of another architecture ends the process`() async {
        #if arch(x86_64)
            await #expect(processExitsWith: .signal(SIGSYS)) {
                _ = try Confinement(readable: [], writable: [], sockets: .unix).apply()
                _ = raw_foreign_call()
            }
        #endif
    }
}

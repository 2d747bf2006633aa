#define _GNU_SOURCE
#include "raw_calls.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) { #name, SYS_##name }

static const struct { const char *name; long number; } calls[] = {
    CALL(execve), CALL(execveat), CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev),
    CALL(process_madvise), CALL(process_mrelease), CALL(kcmp), CALL(pidfd_open), CALL(pidfd_getfd),
    CALL(pidfd_send_signal), CALL(tkill), CALL(mount), CALL(umount2), CALL(move_mount), CALL(fsopen), CALL(fsconfig),
    CALL(fsmount), CALL(fspick), CALL(open_tree), CALL(mount_setattr), CALL(pivot_root), CALL(chroot), CALL(unshare),
    CALL(setns), CALL(open_by_handle_at), CALL(name_to_handle_at), CALL(fanotify_init), CALL(bpf),
    CALL(perf_event_open), CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register), CALL(userfaultfd),
    CALL(keyctl), CALL(add_key), CALL(request_key), CALL(setuid), CALL(setgid), CALL(setreuid), CALL(setregid),
    CALL(setresuid), CALL(setresgid), CALL(setfsuid), CALL(setfsgid), CALL(setgroups), CALL(capset),
    CALL(init_module), CALL(finit_module), CALL(delete_module), CALL(kexec_load), CALL(reboot), CALL(swapon),
    CALL(swapoff), CALL(sethostname), CALL(setdomainname), CALL(settimeofday), CALL(clock_settime), CALL(adjtimex),
    CALL(clock_adjtime), CALL(personality), CALL(acct), CALL(quotactl), CALL(quotactl_fd), CALL(syslog),
    CALL(kill), CALL(tgkill), CALL(rt_sigqueueinfo), CALL(rt_tgsigqueueinfo), CALL(prlimit64), CALL(clone),
    CALL(clone3), CALL(ioctl), CALL(prctl), CALL(fcntl), CALL(listen), CALL(fchmod), CALL(fchmodat), CALL(fchown),
    CALL(fchownat), CALL(utimensat), CALL(setxattr), CALL(lsetxattr), CALL(fsetxattr), CALL(removexattr),
    CALL(lremovexattr), CALL(fremovexattr), CALL(getpid), CALL(set_mempolicy_home_node),
};

long raw_call_number(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(calls[i].name, name) == 0) return calls[i].number;
    }
    return -1;
}

int raw_call(long number, long first, long second, long third)
{
    return syscall(number, first, second, third, 0L, 0L, 0L) == -1 ? errno : 0;
}

int raw_gains_no_privileges(void)
{
    return prctl(PR_GET_NO_NEW_PRIVS, 0L, 0L, 0L, 0L) == 1;
}

int raw_is_dumpable(void)
{
    return prctl(PR_GET_DUMPABLE, 0L, 0L, 0L, 0L);
}

int raw_foreign_call(void)
{
#if defined(__x86_64__)
    int result = 20;
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return 1;
#else
    return 0;
#endif
}

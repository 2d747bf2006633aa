/* CLinux: see include/confine.h. The system calls that a confined process is refused.
 *
 * A list of what is refused, not of what is allowed: name resolution loads modules of others (nsswitch.conf(5)), which
 * call what nobody foresaw. Newer calls than the list was held against do not exist for the process, so that a new one
 * gets in by somebody's decision.
 *
 * A filter sees arguments as numbers and cannot follow a pointer. The kernel reads ints out of the lower half of an
 * argument alone, and so does the filter: what stands in the upper half changes nothing. */
#define _GNU_SOURCE

#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <netinet/in.h>
#include <asm/sockios.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "The filter knows the system calls of x86_64 and aarch64 only."
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of an argument comes first");

/* The newest call of Linux 6.1. Whoever raises it looks at each one that this lets in. The calls of x32 are numbered
 * from 0x40000000 on and so lie above it, too. */
enum { NEWEST_CALL = __NR_set_mempolicy_home_node };

static const uint16_t refused_calls[] = {
    /* Other programs. */
    __NR_execve, __NR_execveat,
    /* Other processes: their memory, their descriptors, signals to them. tkill does not say whose thread it means. */
    __NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_process_madvise, __NR_process_mrelease, __NR_kcmp,
    __NR_pidfd_open, __NR_pidfd_getfd, __NR_pidfd_send_signal, __NR_tkill,
    /* Another view of the file system, and ways around paths. */
    __NR_mount, __NR_umount2, __NR_move_mount, __NR_fsopen, __NR_fsconfig, __NR_fsmount, __NR_fspick, __NR_open_tree,
    __NR_mount_setattr, __NR_pivot_root, __NR_chroot, __NR_unshare, __NR_setns, __NR_open_by_handle_at,
    __NR_name_to_handle_at, __NR_fanotify_init,
    /* Wide doors into the kernel, through which most that is broken in it was reached. io_uring also makes calls that
     * no filter sees. */
    __NR_bpf, __NR_perf_event_open, __NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register,
    __NR_userfaultfd, __NR_keyctl, __NR_add_key, __NR_request_key,
    /* Another account. */
    __NR_setuid, __NR_setgid, __NR_setreuid, __NR_setregid, __NR_setresuid, __NR_setresgid, __NR_setfsuid,
    __NR_setfsgid, __NR_setgroups, __NR_capset,
    /* The machine: for root alone, which a process started by hand may be. */
    __NR_init_module, __NR_finit_module, __NR_delete_module, __NR_kexec_load, __NR_reboot, __NR_swapon, __NR_swapoff,
    __NR_sethostname, __NR_setdomainname, __NR_settimeofday, __NR_clock_settime, __NR_adjtimex, __NR_clock_adjtime,
    __NR_personality, __NR_acct, __NR_quotactl, __NR_quotactl_fd, __NR_syslog,
#ifdef __NR_kexec_file_load
    __NR_kexec_file_load,
#endif
#ifdef __NR_iopl
    __NR_iopl, __NR_ioperm, __NR_modify_ldt,
#endif
};

/* Modes, owners and extended attributes of files: Landlock does not cover them, so that these calls would reach every
 * file of the account. */
static const uint16_t attribute_calls[] = {
    __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_setxattr, __NR_lsetxattr,
    __NR_fsetxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr,
#ifdef __NR_chmod
    __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
};

_Bool clinux_starts_a_symbolizer(void) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return 1;
#endif
#endif
    return 0;
}

enum { MOST_INSTRUCTIONS = 512 };

/* A filter that is being written. */
struct filter {
    struct sock_filter code[MOST_INSTRUCTIONS];
    size_t count;
};

static void add(struct filter *filter, uint16_t code, uint32_t operand, uint8_t if_true, uint8_t if_false) {
    /* What comes behind the end is counted, and the filter then not used. */
    if (filter->count < MOST_INSTRUCTIONS)
        filter->code[filter->count] = (struct sock_filter){code, if_true, if_false, operand};
    filter->count++;
}

static void load(struct filter *filter, size_t offset) {
    add(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void load_argument(struct filter *filter, unsigned index) {
    load(filter, offsetof(struct seccomp_data, args) + index * sizeof(uint64_t));
}

static void answer(struct filter *filter, uint32_t what) {
    add(filter, BPF_RET | BPF_K, what, 0, 0);
}

static void refuse(struct filter *filter, int code) {
    answer(filter, SECCOMP_RET_ERRNO | (uint32_t)code);
}

/* Skips so many instructions unless what is loaded is this number. */
static void unless_equal_skip(struct filter *filter, uint32_t number, uint8_t count) {
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, number, 0, count);
}

static void refuse_if_equal(struct filter *filter, uint32_t number, int code) {
    unless_equal_skip(filter, number, 1);
    refuse(filter, code);
}

/* What follows is for one call, until `end_call`. It ends in an answer. */
static size_t begin_call(struct filter *filter, uint32_t number) {
    unless_equal_skip(filter, number, 0);
    return filter->count;
}

static void end_call(struct filter *filter, size_t begin) {
    size_t length = filter->count - begin;
    if (begin <= MOST_INSTRUCTIONS && length <= UINT8_MAX) {
        filter->code[begin - 1].jf = (uint8_t)length;
    } else {
        filter->count = MOST_INSTRUCTIONS + 1;
    }
}

/* Allows a call where an argument is one of these numbers, and refuses it otherwise. */
static void allow_only(
    struct filter *filter, uint32_t call, unsigned argument, const uint32_t *numbers, size_t count, int code) {
    size_t begin = begin_call(filter, call);
    load_argument(filter, argument);
    for (size_t i = 0; i < count; i++) {
        unless_equal_skip(filter, numbers[i], 1);
        answer(filter, SECCOMP_RET_ALLOW);
    }
    refuse(filter, code);
    end_call(filter, begin);
}

/* Refuses a call where an argument is one of these numbers. */
static void refuse_where(
    struct filter *filter, uint32_t call, unsigned argument, const uint32_t *numbers, size_t count) {
    size_t begin = begin_call(filter, call);
    load_argument(filter, argument);
    for (size_t i = 0; i < count; i++) refuse_if_equal(filter, numbers[i], EPERM);
    answer(filter, SECCOMP_RET_ALLOW);
    end_call(filter, begin);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* abort(3), raise(3) and pthread_kill(3) send signals to threads of the own process. */
static void add_signals(struct filter *filter) {
    const uint32_t own = (uint32_t)getpid();
    const uint32_t us[] = {0, own};
    allow_only(filter, __NR_kill, 0, &own, 1, EPERM);
    allow_only(filter, __NR_tgkill, 0, &own, 1, EPERM);
    allow_only(filter, __NR_rt_sigqueueinfo, 0, &own, 1, EPERM);
    allow_only(filter, __NR_rt_tgsigqueueinfo, 0, &own, 1, EPERM);
    /* Limits of another process of the same account can end it: a processor time of 0 does. */
    allow_only(filter, __NR_prlimit64, 0, us, COUNT(us), EPERM);
    /* What happens on a descriptor can be told to any process by a signal of one's choice. */
    static const uint32_t owners[] = {F_SETOWN, F_SETOWN_EX};
    refuse_where(filter, __NR_fcntl, 1, owners, COUNT(owners));
}

/* Allows utimensat(2) for an open file alone, as futimens(3) calls it: with a null path, of which both halves count. */
static void add_times_of_open_files(struct filter *filter) {
    size_t begin = begin_call(filter, __NR_utimensat);
    for (size_t half = 0; half < 2; half++) {
        load(filter, offsetof(struct seccomp_data, args) + sizeof(uint64_t) + half * sizeof(uint32_t));
        add(filter, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
        refuse(filter, EPERM);
    }
    answer(filter, SECCOMP_RET_ALLOW);
    end_call(filter, begin);
}

static void add_clones(struct filter *filter) {
    static const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER
        | CLONE_NEWPID | CLONE_NEWNET;
    size_t begin = begin_call(filter, __NR_clone);
    load_argument(filter, 0);
    add(filter, BPF_JMP | BPF_JSET | BPF_K, namespaces, 0, 1);
    refuse(filter, EPERM);
    answer(filter, SECCOMP_RET_ALLOW);
    end_call(filter, begin);
    /* Its flags are behind a pointer. The C library then does with clone. */
    refuse_if_equal(filter, __NR_clone3, ENOSYS);
}

/* Without the bits that are flags for the descriptor. */
static void load_socket_type(struct filter *filter) {
    load_argument(filter, 1);
    add(filter, BPF_ALU | BPF_AND | BPF_K, (uint32_t)~(SOCK_CLOEXEC | SOCK_NONBLOCK), 0, 0);
}

static void allow_protocols(struct filter *filter, const uint32_t *protocols, size_t count) {
    load_argument(filter, 2);
    for (size_t i = 0; i < count; i++) {
        unless_equal_skip(filter, protocols[i], 1);
        answer(filter, SECCOMP_RET_ALLOW);
    }
    refuse(filter, EPROTONOSUPPORT);
}

/* TCP and UDP by IP, and what getaddrinfo(3) asks for the machine's addresses. */
static void add_internet_sockets(struct filter *filter) {
    static const uint32_t routes[] = {NETLINK_ROUTE}, protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP};
    size_t begin = begin_call(filter, __NR_socket);
    load_argument(filter, 0);
    size_t netlink = begin_call(filter, AF_NETLINK);
    allow_protocols(filter, routes, COUNT(routes));
    end_call(filter, netlink);
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0);
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0);
    refuse(filter, EAFNOSUPPORT);
    load_socket_type(filter);
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 2, 0);
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0);
    refuse(filter, EPERM);
    allow_protocols(filter, protocols, COUNT(protocols));
    end_call(filter, begin);

    /* One of a pair of datagram sockets can be connected to any other socket by its path. */
    begin = begin_call(filter, __NR_socketpair);
    load_socket_type(filter);
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0);
    refuse(filter, EPERM);
    answer(filter, SECCOMP_RET_ALLOW);
    end_call(filter, begin);

    /* Whoever asks others is asked by nobody. */
    refuse_if_equal(filter, __NR_listen, EPERM);
}

static void write_filter(struct filter *filter, int internet, int read_only) {
    /* Input that a terminal takes for somebody's typing; and the owners of descriptors once more. */
    static const uint32_t controls[] = {TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP};
    static const uint32_t settings[] = {PR_SET_DUMPABLE, PR_SET_PTRACER}, local[] = {AF_UNIX};

    /* A call of another architecture has other numbers: int 0x80 on x86_64. */
    load(filter, offsetof(struct seccomp_data, arch));
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0);
    answer(filter, SECCOMP_RET_KILL_PROCESS);
    load(filter, offsetof(struct seccomp_data, nr));
    add(filter, BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1);
    refuse(filter, ENOSYS);
    for (size_t i = 0; i < COUNT(refused_calls); i++) refuse_if_equal(filter, refused_calls[i], EPERM);
    for (size_t i = 0; i < COUNT(attribute_calls); i++) refuse_if_equal(filter, attribute_calls[i], EPERM);
    if (read_only) {
        refuse_if_equal(filter, __NR_utimensat, EPERM);
    } else {
        add_times_of_open_files(filter);
    }
    add_signals(filter);
    add_clones(filter);
    refuse_where(filter, __NR_ioctl, 1, controls, COUNT(controls));
    refuse_where(filter, __NR_prctl, 0, settings, COUNT(settings));
    if (internet) {
        add_internet_sockets(filter);
    } else {
        allow_only(filter, __NR_socket, 0, local, COUNT(local), EAFNOSUPPORT);
    }
    answer(filter, SECCOMP_RET_ALLOW);
}

int clinux_refuse_calls(int internet, int read_only) {
    struct filter filter;
    filter.count = 0;
    write_filter(&filter, internet, read_only);
    if (filter.count > MOST_INSTRUCTIONS) {
        errno = E2BIG;
        return -1;
    }
    struct sock_fprog program = {.len = (unsigned short)filter.count, .filter = filter.code};
    /* Not seccomp(2), which does no more without flags, and which filters of service managers may refuse. */
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0L, 0L);
}

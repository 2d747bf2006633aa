/* CLinux: see include/confine.h. System call filters, seccomp(2).
 *
 * A filter is a list of rules. The kernel gives it the number and the arguments of each call; the first rule that
 * matches decides, otherwise the default of the list. Arguments are numbers: a filter cannot follow a pointer. Most
 * arguments are ints, which the kernel reads from the lower half of the register, so rules compare that half. */
#define _GNU_SOURCE

#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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
#error "The filters know the system calls of x86_64 and aarch64 only."
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of an argument comes first");

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Rules and their translation to BPF. */

enum { MAX_CONDITIONS = 3, MAX_INSTRUCTIONS = 512 };

/* Compares one half of an argument, reduced to the bits of `mask`, with `value`. */
struct condition {
    enum { NONE, EQUAL, DIFFERENT } test;
    uint8_t argument, is_upper_half;
    uint32_t mask, value;
};

#define IS(argument, value) {EQUAL, argument, 0, UINT32_MAX, value}
#define IS_NOT(argument, value) {DIFFERENT, argument, 0, UINT32_MAX, value}
#define UPPER_IS_NOT(argument, value) {DIFFERENT, argument, 1, UINT32_MAX, value}
#define HAS_NONE_OF(argument, bits) {EQUAL, argument, 0, bits, 0}
#define HAS_ANY_OF(argument, bits) {DIFFERENT, argument, 0, bits, 0}
#define HAS_ALL_OF(argument, bits) {EQUAL, argument, 0, bits, bits}

/* Matches a call if all conditions hold. */
struct rule {
    uint32_t action;
    uint16_t call;
    struct condition conditions[MAX_CONDITIONS];
};

#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE(code) (SECCOMP_RET_ERRNO | (code))

struct filter {
    struct sock_filter code[MAX_INSTRUCTIONS];
    size_t count;
    /* Whether the next instruction finds the number of the call in the accumulator. */
    int has_call;
};

static void add(struct filter *filter, uint16_t code, uint32_t operand, uint8_t if_true, uint8_t if_false) {
    /* Instructions beyond the limit are counted, and `install` rejects the filter. */
    if (filter->count < MAX_INSTRUCTIONS)
        filter->code[filter->count] = (struct sock_filter){code, if_true, if_false, operand};
    filter->count++;
}

static void load(struct filter *filter, size_t offset) {
    add(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static size_t length_of(const struct condition *condition) { return condition->mask == UINT32_MAX ? 2 : 3; }

static void add_rule(struct filter *filter, const struct rule *rule) {
    size_t rest = 1;
    for (size_t i = 0; i < MAX_CONDITIONS && rule->conditions[i].test; i++) rest += length_of(&rule->conditions[i]);
    if (!filter->has_call) load(filter, offsetof(struct seccomp_data, nr));
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, rule->call, 0, (uint8_t)rest);
    for (const struct condition *next = rule->conditions; rest > 1; next++) {
        load(filter, offsetof(struct seccomp_data, args) + next->argument * sizeof(uint64_t)
            + (next->is_upper_half ? sizeof(uint32_t) : 0));
        if (next->mask != UINT32_MAX) add(filter, BPF_ALU | BPF_AND | BPF_K, next->mask, 0, 0);
        rest -= length_of(next);
        uint8_t skip = (uint8_t)rest;
        add(filter, BPF_JMP | BPF_JEQ | BPF_K, next->value, next->test == EQUAL ? 0 : skip,
            next->test == EQUAL ? skip : 0);
    }
    add(filter, BPF_RET | BPF_K, rule->action, 0, 0);
    filter->has_call = !rule->conditions[0].test;
}

static void add_rules(struct filter *filter, const struct rule *rules, size_t count) {
    for (size_t i = 0; i < count; i++) add_rule(filter, &rules[i]);
}

static void add_calls(struct filter *filter, uint32_t action, const uint16_t *calls, size_t count) {
    for (size_t i = 0; i < count; i++) add_rule(filter, &(struct rule){.action = action, .call = calls[i]});
}

static void begin(struct filter *filter) {
    filter->count = 0;
    filter->has_call = 0;
    /* Another architecture has other numbers: int 0x80 on x86_64. */
    load(filter, offsetof(struct seccomp_data, arch));
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0);
    add(filter, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
}

/* Completes a filter and puts it in force. Returns 0, with `has_listener` a descriptor, or -1 with errno. */
static int install(struct filter *filter, uint32_t action, int has_listener) {
    add(filter, BPF_RET | BPF_K, action, 0, 0);
    if (filter->count > MAX_INSTRUCTIONS) {
        errno = E2BIG;
        return -1;
    }
    struct sock_fprog program = {.len = (unsigned short)filter->count, .filter = filter->code};
    if (has_listener)
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    /* Without flags prctl(2) does the same as seccomp(2), which filters of service managers may refuse. */
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0L, 0L);
}

/* Daemon and fetcher: a deny list, because name resolution loads modules of the administrator (nsswitch.conf(5)), whose
 * system calls cannot be foreseen. */

/* The newest call of Linux 6.1. Newer ones fail with ENOSYS until they are reviewed and this number is raised.
 * The calls of x32 are numbered from 0x40000000 and fail, too. */
enum { NEWEST_CALL = __NR_set_mempolicy_home_node };

static const uint16_t refused_calls[] = {
    /* Other programs. */
    __NR_execve, __NR_execveat,
    /* Other processes: their memory, their descriptors, signals to them. tkill does not name the process. */
    __NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_process_madvise, __NR_process_mrelease, __NR_kcmp,
    __NR_pidfd_open, __NR_pidfd_getfd, __NR_pidfd_send_signal, __NR_tkill,
    /* Another view of the file system, and access to files without a path. */
    __NR_mount, __NR_umount2, __NR_move_mount, __NR_fsopen, __NR_fsconfig, __NR_fsmount, __NR_fspick, __NR_open_tree,
    __NR_mount_setattr, __NR_pivot_root, __NR_chroot, __NR_unshare, __NR_setns, __NR_open_by_handle_at,
    __NR_name_to_handle_at, __NR_fanotify_init,
    /* Large kernel interfaces that most exploits of the kernel used. io_uring also makes calls that no filter sees. */
    __NR_bpf, __NR_perf_event_open, __NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register,
    __NR_userfaultfd, __NR_keyctl, __NR_add_key, __NR_request_key,
    /* Another account. */
    __NR_setuid, __NR_setgid, __NR_setreuid, __NR_setregid, __NR_setresuid, __NR_setresgid, __NR_setfsuid,
    __NR_setfsgid, __NR_setgroups, __NR_capset,
    /* Administration of the machine, for a process that was started as root. */
    __NR_init_module, __NR_finit_module, __NR_delete_module, __NR_kexec_load, __NR_reboot, __NR_swapon, __NR_swapoff,
    __NR_sethostname, __NR_setdomainname, __NR_settimeofday, __NR_clock_settime, __NR_adjtimex, __NR_clock_adjtime,
    __NR_personality, __NR_acct, __NR_quotactl, __NR_quotactl_fd, __NR_syslog,
#ifdef __NR_kexec_file_load
    __NR_kexec_file_load,
#endif
#ifdef __NR_iopl
    __NR_iopl, __NR_ioperm, __NR_modify_ldt,
#endif
    /* Modes, owners and extended attributes: Landlock does not cover them, so they would reach every file of the
     * account. */
    __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_setxattr, __NR_lsetxattr,
    __NR_fsetxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr,
#ifdef __NR_chmod
    __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
};

#define NEW_NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Refused with certain arguments. */
static const struct rule refused_arguments[] = {
    {REFUSE(EPERM), __NR_clone, {HAS_ANY_OF(0, NEW_NAMESPACES)}},
    /* Its flags are in memory. The C library falls back to clone. */
    {REFUSE(ENOSYS), __NR_clone3, {{0}}},
    /* The kernel would send a signal of the caller's choice to any process when something happens on a descriptor. */
    {REFUSE(EPERM), __NR_fcntl, {IS(1, F_SETOWN)}},
    {REFUSE(EPERM), __NR_fcntl, {IS(1, F_SETOWN_EX)}},
    {REFUSE(EPERM), __NR_ioctl, {IS(1, FIOSETOWN)}},
    {REFUSE(EPERM), __NR_ioctl, {IS(1, SIOCSPGRP)}},
    /* Input that a terminal takes for typed text. */
    {REFUSE(EPERM), __NR_ioctl, {IS(1, TIOCSTI)}},
    {REFUSE(EPERM), __NR_ioctl, {IS(1, TIOCLINUX)}},
    {REFUSE(EPERM), __NR_prctl, {IS(0, PR_SET_DUMPABLE)}},
    {REFUSE(EPERM), __NR_prctl, {IS(0, PR_SET_PTRACER)}},
};

static const struct rule local_sockets[] = {
    {REFUSE(EAFNOSUPPORT), __NR_socket, {IS_NOT(0, AF_UNIX)}},
};

#define TYPE_IS_NOT(type) {DIFFERENT, 1, 0, (uint32_t)~(SOCK_CLOEXEC | SOCK_NONBLOCK), type}

static const struct rule internet_sockets[] = {
    {REFUSE(EAFNOSUPPORT), __NR_socket, {IS_NOT(0, AF_INET), IS_NOT(0, AF_INET6), IS_NOT(0, AF_NETLINK)}},
    /* getaddrinfo(3) reads the addresses of the machine from NETLINK_ROUTE. */
    {REFUSE(EPROTONOSUPPORT), __NR_socket, {IS(0, AF_NETLINK), IS_NOT(2, NETLINK_ROUTE)}},
    {ALLOW, __NR_socket, {IS(0, AF_NETLINK)}},
    {REFUSE(EPERM), __NR_socket, {TYPE_IS_NOT(SOCK_STREAM), TYPE_IS_NOT(SOCK_DGRAM)}},
    {REFUSE(EPROTONOSUPPORT), __NR_socket, {IS_NOT(2, 0), IS_NOT(2, IPPROTO_TCP), IS_NOT(2, IPPROTO_UDP)}},
    /* One of a pair of datagram sockets can be connected to any Unix socket by its path. */
    {REFUSE(EPERM), __NR_socketpair, {TYPE_IS_NOT(SOCK_STREAM)}},
    /* The fetcher accepts no connections. */
    {REFUSE(EPERM), __NR_listen, {{0}}},
};

/* utimensat(2) on an open file has a null path, as futimens(3) passes it. */
static const struct rule times_of_open_files[] = {
    {REFUSE(EPERM), __NR_utimensat, {IS_NOT(1, 0)}},
    {REFUSE(EPERM), __NR_utimensat, {UPPER_IS_NOT(1, 0)}},
};
static const struct rule no_times[] = {{REFUSE(EPERM), __NR_utimensat, {{0}}}};

int clinux_refuse_calls(int internet, int read_only) {
    const uint32_t own = (uint32_t)getpid();
    const struct rule other_processes[] = {
        /* abort(3), raise(3) and pthread_kill(3) send signals to threads of the own process. */
        {REFUSE(EPERM), __NR_kill, {IS_NOT(0, own)}},
        {REFUSE(EPERM), __NR_tgkill, {IS_NOT(0, own)}},
        {REFUSE(EPERM), __NR_rt_sigqueueinfo, {IS_NOT(0, own)}},
        {REFUSE(EPERM), __NR_rt_tgsigqueueinfo, {IS_NOT(0, own)}},
        /* A processor time limit of 0 would kill another process of the account. */
        {REFUSE(EPERM), __NR_prlimit64, {IS_NOT(0, 0), IS_NOT(0, own)}},
    };
    struct filter filter;
    begin(&filter);
    load(&filter, offsetof(struct seccomp_data, nr));
    add(&filter, BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1);
    add(&filter, BPF_RET | BPF_K, REFUSE(ENOSYS), 0, 0);
    filter.has_call = 1;
    add_calls(&filter, REFUSE(EPERM), refused_calls, COUNT(refused_calls));
    add_rules(&filter, refused_arguments, COUNT(refused_arguments));
    add_rules(&filter, other_processes, COUNT(other_processes));
    if (read_only) add_rules(&filter, no_times, COUNT(no_times));
    else add_rules(&filter, times_of_open_files, COUNT(times_of_open_files));
    if (internet) add_rules(&filter, internet_sockets, COUNT(internet_sockets));
    else add_rules(&filter, local_sockets, COUNT(local_sockets));
    return install(&filter, ALLOW, 0);
}

_Bool clinux_starts_a_symbolizer(void) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return 1;
#endif
#endif
    return 0;
}

/* The renderer's workers: an allow list. */

static const uint16_t worker_calls[] = {
    /* The connection, which is the only open descriptor. */
    __NR_read, __NR_write, __NR_readv, __NR_writev, __NR_recvfrom, __NR_ppoll, __NR_close, __NR_fstat, __NR_newfstatat,
#ifdef __NR_poll
    __NR_poll,
#endif
    /* Memory, with `worker_rules`. */
    __NR_munmap, __NR_mremap, __NR_madvise, __NR_brk,
    /* Threads and signals of the worker. */
    __NR_futex, __NR_set_robust_list, __NR_rseq, __NR_gettid, __NR_getpid, __NR_sched_yield, __NR_rt_sigaction,
    __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sigaltstack, __NR_restart_syscall,
    /* Time and random numbers. */
    __NR_clock_gettime, __NR_clock_nanosleep, __NR_nanosleep, __NR_gettimeofday, __NR_setitimer, __NR_getrusage,
    __NR_getrandom,
    __NR_exit, __NR_exit_group,
};

static const struct rule worker_rules[] = {
    /* Anonymous memory that is never executable. */
    {ALLOW, __NR_mmap, {HAS_NONE_OF(2, PROT_EXEC), HAS_ALL_OF(3, MAP_ANONYMOUS)}},
    {ALLOW, __NR_mprotect, {HAS_NONE_OF(2, PROT_EXEC)}},
    /* Threads, which libvips needs, but no processes. sched_getaffinity(2) is not allowed, so that no decoder starts a
     * thread for each processor. */
    {ALLOW, __NR_clone, {HAS_ALL_OF(0, CLONE_THREAD)}},
    {REFUSE(ENOSYS), __NR_clone3, {{0}}},
};

int clinux_allow_worker_calls(void) {
    struct filter filter;
    begin(&filter);
    add_calls(&filter, ALLOW, worker_calls, COUNT(worker_calls));
    add_rules(&filter, worker_rules, COUNT(worker_rules));
    return install(&filter, REFUSE(EPERM), 0);
}

static const struct rule reported_threads[] = {
    {SECCOMP_RET_USER_NOTIF, __NR_clone, {HAS_ALL_OF(0, CLONE_THREAD)}},
    {REFUSE(ENOSYS), __NR_clone3, {{0}}},
};

int clinux_report_threads(void) {
    struct filter filter;
    begin(&filter);
    add_rules(&filter, reported_threads, COUNT(reported_threads));
    return install(&filter, ALLOW, 1);
}

int clinux_allow_thread(int listener) {
    /* The structures of a newer kernel may be longer than those of its header. */
    struct seccomp_notif_sizes sizes;
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) return -1;
    size_t request_size = sizes.seccomp_notif, response_size = sizes.seccomp_notif_resp;
    if (request_size < sizeof(struct seccomp_notif)) request_size = sizeof(struct seccomp_notif);
    if (response_size < sizeof(struct seccomp_notif_resp)) response_size = sizeof(struct seccomp_notif_resp);
    struct seccomp_notif *request = calloc(1, request_size);
    struct seccomp_notif_resp *response = calloc(1, response_size);
    int result = -1;
    if (request && response && ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, request) == 0) {
        response->id = request->id;
        response->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        result = ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, response);
    }
    free(request);
    free(response);
    return result;
}

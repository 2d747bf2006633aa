/* CRenderer: see include/renderer.h. The process itself. */
#define _GNU_SOURCE

#include "renderer.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

pid_t crenderer_fork(void) { return fork(); }

int crenderer_poll(struct pollfd *waits, size_t count, int seconds, const sigset_t *signals) {
    struct timespec limit = {.tv_sec = seconds};
    return ppoll(waits, count, seconds < 0 ? NULL : &limit, signals);
}

int crenderer_end_with(pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return -1;
    if (getppid() == parent) return 0;
    /* It has ended meanwhile, and nobody sends the signal any more. */
    errno = ESRCH;
    return -1;
}

void crenderer_give_way(void) {
    struct sched_param none = {0};
    /* Where either is refused, it has the share of everybody else. */
    sched_setscheduler(0, SCHED_BATCH, &none);
    setpriority(PRIO_PROCESS, 0, 10);
}

/* Adds an action for calls that start a thread. The flags of clone3 are in memory, where no filter can read them; the C
 * library falls back to clone. */
static int allow_threads(scmp_filter_ctx filter, uint32_t action) {
    int result = seccomp_rule_add(
        filter, action, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    return result != 0 ? result : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

int crenderer_report_threads(void) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter) return -1;
    int result = allow_threads(filter, SCMP_ACT_NOTIFY);
    if (result == 0) result = seccomp_load(filter);
    int listener = result == 0 ? seccomp_notify_fd(filter) : -1;
    seccomp_release(filter);
    return listener;
}

int crenderer_allow_thread(int listener) {
    struct seccomp_notif *request;
    struct seccomp_notif_resp *response;
    int result = seccomp_notify_alloc(&request, &response);
    if (result != 0) return result;
    result = seccomp_notify_receive(listener, request);
    if (result == 0) {
        response->id = request->id;
        response->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        result = seccomp_notify_respond(listener, response);
    }
    seccomp_notify_free(request, response);
    return result;
}

static int allow_calls(scmp_filter_ctx filter) {
    static const int calls[] = {
        /* What is open. */
        SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(recvfrom), SCMP_SYS(poll),
        SCMP_SYS(ppoll), SCMP_SYS(close), SCMP_SYS(fstat), SCMP_SYS(newfstatat),
        /* Memory; how it is made is looked at below. */
        SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk),
        /* Threads and signals of its own. */
        SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(gettid), SCMP_SYS(getpid),
        SCMP_SYS(sched_yield), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall),
        /* Time, and chance. */
        SCMP_SYS(clock_gettime), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep), SCMP_SYS(gettimeofday),
        SCMP_SYS(setitimer), SCMP_SYS(getrusage), SCMP_SYS(getrandom),
        /* The end. */
        SCMP_SYS(exit), SCMP_SYS(exit_group),
    };
    for (size_t index = 0; index < sizeof calls / sizeof *calls; index++) {
        int result = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[index], 0);
        /* A call that this architecture does not have. */
        if (result != 0 && result != -EDOM) return result;
    }
    /* Memory without a file behind it, which nobody executes. */
    int result = seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
        SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    if (result != 0) return result;
    result = seccomp_rule_add(
        filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (result != 0) return result;
    /* Threads, which libvips needs, but no processes. The parent counts them: `crenderer_report_threads`. The number of
     * processors stays unknown, so that a decoder starts no thread for each of them. */
    return allow_threads(filter, SCMP_ACT_ALLOW);
}

int crenderer_confine(void) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter) return ENOMEM;
    int result = allow_calls(filter);
    if (result == 0) result = seccomp_load(filter);
    seccomp_release(filter);
    return -result;
}

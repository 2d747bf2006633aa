#define _GNU_SOURCE
#include "tries.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Opens a file of another process and reads a byte of it. */
static void try_file(const char *number, const char *file)
{
    char path[64], what[32], byte;
    snprintf(path, sizeof path, "/proc/%s/%s", number, file);
    snprintf(what, sizeof what, "%s of ", file);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    /* EIO: address 0 is not mapped, but reading was allowed. */
    long result = descriptor < 0 ? -1 : read(descriptor, &byte, 1);
    if (result == -1 && errno == EIO) result = 0;
    report(result, what, number);
    if (descriptor >= 0) close(descriptor);
}

static void try_ptrace(pid_t process, const char *number)
{
    /* PTRACE_SEIZE does not stop the process, so it continues if the attempt succeeds. */
    long result = ptrace(PTRACE_SEIZE, process, NULL, NULL);
    report(result, "ptrace of ", number);
    if (result != 0 || ptrace(PTRACE_INTERRUPT, process, NULL, NULL) != 0) return;
    waitpid(process, NULL, __WALL);
    ptrace(PTRACE_DETACH, process, NULL, NULL);
}

static void try_memory(pid_t process, const char *number)
{
    char byte;
    struct iovec here = { .iov_base = &byte, .iov_len = 1 }, there = { .iov_base = (void *)8, .iov_len = 1 };
    long result = process_vm_readv(process, &here, 1, &there, 1, 0);
    /* EFAULT: permission was granted; the kernel checks the address last. */
    report(result == -1 && errno == EFAULT ? 0 : result, "process_vm_readv of ", number);
}

static void try_pidfd(pid_t process, const char *number)
{
    int pidfd = (int)syscall(SYS_pidfd_open, process, 0);
    report(pidfd, "pidfd_open of ", number);
    int descriptor = (int)syscall(SYS_pidfd_getfd, pidfd, 0, 0);
    report(descriptor, "pidfd_getfd of ", number);
    if (descriptor >= 0) close(descriptor);
    if (pidfd >= 0) close(pidfd);
}

void try_process(pid_t process)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)process);
    try_file(number, "mem");
    try_file(number, "environ");
    try_ptrace(process, number);
    try_memory(process, number);
    try_pidfd(process, number);
    report(kill(process, 0), "kill of ", number);
}

static void try_program(void)
{
    char shell[] = "sh", option[] = "-c", script[] = "exit 0";
    char *arguments[] = { shell, option, script, NULL }, *environment[] = { NULL };
    pid_t child;
    int code = posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environment);
    errno = code;
    report(code == 0 ? 0 : -1, "execve", "");
    if (code == 0) waitpid(child, NULL, 0);
}

static void try_namespace(void)
{
    /* Not unshare(2), which always refuses this to a process with several threads. */
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) _exit(0);
    report(child, "user namespace", "");
    if (child > 0) waitpid((pid_t)child, NULL, 0);
}

void try_powers(void)
{
    try_program();
    try_namespace();
    /* The system call affects only this thread, unlike setuid(3). */
    report(syscall(SYS_setuid, 0), "setuid", "");
    report(prctl(PR_SET_DUMPABLE, 1L, 0L, 0L, 0L), "dumpable", "");
}

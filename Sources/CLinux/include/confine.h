/* Confinement of a process: Landlock for files, seccomp for system calls. Each function applies to the calling thread
 * and to the threads and processes that it starts afterwards, and cannot be undone. Unless stated otherwise it
 * returns 0, or -1 with errno.
 *
 * Plain C, as shim.h is, and for the same reason. */
#ifndef CLINUX_CONFINE_H
#define CLINUX_CONFINE_H

#include <stdint.h>

/* Sets PR_SET_NO_NEW_PRIVS, prctl(2): no started program gets more privileges. Landlock and seccomp require it of a
 * process that is not root. */
int clinux_gain_no_privileges(void);

/* Whether this is a ThreadSanitizer build. Its runtime starts a program that finds the names of functions, so such a
 * build cannot be confined. */
_Bool clinux_starts_a_symbolizer(void);

/* The version of the kernel's Landlock: landlock_create_ruleset(2). -1 with errno: ENOSYS if the kernel was built
 * without it, EOPNOTSUPP if it was disabled at boot, EPERM if a filter refuses the call. */
int clinux_landlock_version(void);

/* Bits of landlock_ruleset_attr.handled_access_fs. Comments give the version of later ones. */
static const uint64_t CLINUX_LANDLOCK_EXECUTE = 1u << 0;
static const uint64_t CLINUX_LANDLOCK_WRITE_FILE = 1u << 1;
static const uint64_t CLINUX_LANDLOCK_READ_FILE = 1u << 2;
static const uint64_t CLINUX_LANDLOCK_READ_DIR = 1u << 3;
static const uint64_t CLINUX_LANDLOCK_MAKE_CHAR = 1u << 6;
static const uint64_t CLINUX_LANDLOCK_MAKE_BLOCK = 1u << 11;
/* All rights of version 1: the above, and creating and removing files, directories, sockets, pipes and links. */
static const uint64_t CLINUX_LANDLOCK_VERSION_1 = (1u << 13) - 1;
static const uint64_t CLINUX_LANDLOCK_REFER = 1u << 13;     /* 2: rename and link into another directory */
static const uint64_t CLINUX_LANDLOCK_TRUNCATE = 1u << 14;  /* 3 */
static const uint64_t CLINUX_LANDLOCK_IOCTL_DEV = 1u << 15; /* 5 */

/* Bits of handled_access_net, version 4. */
static const uint64_t CLINUX_LANDLOCK_BIND_TCP = 1u << 0;
static const uint64_t CLINUX_LANDLOCK_CONNECT_TCP = 1u << 1;

/* Bits of scoped, version 6: access to other processes that is refused. */
static const uint64_t CLINUX_LANDLOCK_SCOPE_ABSTRACT_SOCKETS = 1u << 0;
static const uint64_t CLINUX_LANDLOCK_SCOPE_SIGNALS = 1u << 1;

/* Creates a rule set that refuses the given accesses except where a rule allows them: landlock_create_ruleset(2).
 * Returns a descriptor, closed on exec. */
int clinux_landlock_create(uint64_t files, uint64_t tcp, uint64_t scopes);

/* Allows `files` beneath an open directory or on an open file, which may be O_PATH: landlock_add_rule(2). */
int clinux_landlock_allow(int rules, int beneath, uint64_t files);

/* Puts the rules in force: landlock_restrict_self(2). */
int clinux_landlock_restrict(int rules);

/* Refuses the system calls that seccomp.c lists; sockets of families other than AF_UNIX, or with `internet` other
 * than AF_INET, AF_INET6 and AF_NETLINK; signals to other processes; changes to modes, owners and extended attributes
 * of files; and changes to times, except of open files without `read_only`. errno is EINVAL if the kernel was built
 * without seccomp, E2BIG if the filter is too long. */
int clinux_refuse_calls(int internet, int read_only);

/* For a worker of the renderer: allows only reading and writing open descriptors, anonymous memory that is never
 * executable, threads, time and exit. Every other system call fails with EPERM. */
int clinux_allow_worker_calls(void);

/* Makes each thread that the calling process starts wait for another process: seccomp_unotify(2). Returns a descriptor
 * for `clinux_allow_thread` in that process, or -1 if the kernel cannot do this. Once every copy of the descriptor is
 * closed, starting a thread fails. */
int clinux_report_threads(void);

/* Lets the thread start that made `listener` readable. Does not block on a readable listener whose process is alive. */
int clinux_allow_thread(int listener);

#endif

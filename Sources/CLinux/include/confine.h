/* What a process confines itself with: Landlock for files, seccomp for system calls. Each function does what it says
 * to the calling thread and to whatever that starts from then on, and cannot be taken back.
 *
 * Plain C, as shim.h is, and for the same reason. */
#ifndef CLINUX_CONFINE_H
#define CLINUX_CONFINE_H

#include <stdint.h>

/* No program that is started gets more than this thread has, set-user-ID or not. Both of the others need it of
 * whoever is not root. prctl(2), PR_SET_NO_NEW_PRIVS. 0, or -1 with errno. */
int clinux_gain_no_privileges(void);

/* Whether this was built with ThreadSanitizer. That starts a program which knows the names of functions when it has
 * something to say, and by these names what is no race is told from what is: so such a build starts programs. */
_Bool clinux_starts_a_symbolizer(void);

/* The version of the kernel's Landlock: landlock_create_ruleset(2). -1 with errno: ENOSYS where the kernel was built
 * without, EOPNOTSUPP where it was started without, EPERM where a filter that the process runs under refuses it. */
int clinux_landlock_version(void);

/* What can be done with files: bits of landlock_ruleset_attr.handled_access_fs. Those that came later have the version
 * behind them. */
static const uint64_t CLINUX_LANDLOCK_EXECUTE = 1u << 0;
static const uint64_t CLINUX_LANDLOCK_WRITE_FILE = 1u << 1;
static const uint64_t CLINUX_LANDLOCK_READ_FILE = 1u << 2;
static const uint64_t CLINUX_LANDLOCK_READ_DIR = 1u << 3;
static const uint64_t CLINUX_LANDLOCK_MAKE_CHAR = 1u << 6;
static const uint64_t CLINUX_LANDLOCK_MAKE_BLOCK = 1u << 11;
/* These and what lies between them: files, directories, sockets, pipes and links made and removed. */
static const uint64_t CLINUX_LANDLOCK_VERSION_1 = (1u << 13) - 1;
static const uint64_t CLINUX_LANDLOCK_REFER = 1u << 13;     /* 2: rename and link into another directory */
static const uint64_t CLINUX_LANDLOCK_TRUNCATE = 1u << 14;  /* 3 */
static const uint64_t CLINUX_LANDLOCK_IOCTL_DEV = 1u << 15; /* 5 */

/* With TCP: bits of handled_access_net, version 4. */
static const uint64_t CLINUX_LANDLOCK_BIND_TCP = 1u << 0;
static const uint64_t CLINUX_LANDLOCK_CONNECT_TCP = 1u << 1;

/* What of other processes is out of reach: bits of scoped, version 6. */
static const uint64_t CLINUX_LANDLOCK_SCOPE_ABSTRACT_SOCKETS = 1u << 0;
static const uint64_t CLINUX_LANDLOCK_SCOPE_SIGNALS = 1u << 1;

/* A set of rules, closed on exec, that refuses all it is told of here and no rule allows: landlock_create_ruleset(2).
 * A descriptor, or -1 with errno. */
int clinux_landlock_create(uint64_t files, uint64_t tcp, uint64_t scopes);

/* Allows so much of what is beneath an open directory, or with an open file: landlock_add_rule(2). Both may be
 * O_PATH. 0, or -1 with errno. */
int clinux_landlock_allow(int rules, int beneath, uint64_t files);

/* Puts the rules in force: landlock_restrict_self(2). 0, or -1 with errno. */
int clinux_landlock_restrict(int rules);

/* Refuses the system calls that seccomp.c lists, and sockets of other families than AF_UNIX, or with `internet` than
 * AF_INET, AF_INET6 and AF_NETLINK; changes to modes, owners and extended attributes of files; and changes to times,
 * except of open files without `read_only`. Of signals it lets those to the calling process pass, by the id that it has now. seccomp(2), by prctl(2). 0,
 * or -1 with errno: EINVAL where the kernel was built without, E2BIG if the filter has outgrown its room. */
int clinux_refuse_calls(int internet, int read_only);

#endif

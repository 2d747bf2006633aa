/* CLinux: see include/confine.h. The C library has no functions for Landlock. */
#define _GNU_SOURCE

#include "confine.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/landlock.h>

_Static_assert(LANDLOCK_ACCESS_FS_EXECUTE == 1u << 0 && LANDLOCK_ACCESS_FS_WRITE_FILE == 1u << 1, "the kernel's bits");
_Static_assert(LANDLOCK_ACCESS_FS_READ_FILE == 1u << 2 && LANDLOCK_ACCESS_FS_READ_DIR == 1u << 3, "the kernel's bits");
_Static_assert(LANDLOCK_ACCESS_FS_MAKE_CHAR == 1u << 6 && LANDLOCK_ACCESS_FS_MAKE_BLOCK == 1u << 11, "the same");
_Static_assert(LANDLOCK_ACCESS_FS_MAKE_SYM == 1u << 12 && LANDLOCK_ACCESS_FS_REFER == 1u << 13, "the same");

/* landlock_ruleset_attr of version 6; in the header of Linux 6.1 it ends after `files`. An older kernel accepts the
 * longer structure if the members that it does not know are zero. */
struct rules {
    uint64_t files;
    uint64_t tcp;
    uint64_t scopes;
};

int clinux_gain_no_privileges(void) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L);
}

int clinux_landlock_version(void) {
    return (int)syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);
}

int clinux_landlock_create(uint64_t files, uint64_t tcp, uint64_t scopes) {
    struct rules rules = {.files = files, .tcp = tcp, .scopes = scopes};
    return (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0u);
}

int clinux_landlock_allow(int rules, int beneath, uint64_t files) {
    struct landlock_path_beneath_attr rule = {.allowed_access = files, .parent_fd = beneath};
    return (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0u);
}

int clinux_landlock_restrict(int rules) {
    return (int)syscall(SYS_landlock_restrict_self, rules, 0u);
}

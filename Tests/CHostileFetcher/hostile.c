#define _GNU_SOURCE
#include "hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tries.h"

typedef int add_function(void *, void *);

void tell(long result, const char *what, const char *whom)
{
    const char *name = strerrorname_np(errno);
    /* One write for each line: those of the program itself come between whole ones only. */
    if (result == -1) {
        dprintf(2, "hostile: %s%s: refused (%s)\n", what, whom, name ? name : "?");
    } else {
        dprintf(2, "hostile: %s%s: DONE\n", what, whom);
    }
}

/* Calls `function` with each of the parts of a variable that colons separate. */
static void each(const char *variable, void (*function)(const char *))
{
    const char *value = getenv(variable);
    char *list = value ? strdup(value) : NULL, *rest = list, *part;
    while (rest && (part = strsep(&rest, ":"))) {
        if (*part) function(part);
    }
    free(list);
}

static void try_everything(void)
{
    const char *other = getenv("THUMBCACHED_HOSTILE_PID"), *home = getenv("HOME");
    each("THUMBCACHED_HOSTILE_PATHS", try_path);
    try_path("/etc/shadow");
    try_create("/tmp");
    if (home) try_create(home);
    each("THUMBCACHED_HOSTILE_SOCKETS", try_connect);
    try_process(getppid());
    if (other) try_process((pid_t)strtol(other, NULL, 10));
    try_sockets();
    try_powers();
    try_descriptors();
    dprintf(2, "hostile: end\n");
}

int curl_multi_add_handle(void *multi, void *easy)
{
    /* POSIX has dlsym give functions as pointers to data: a union says so without a cast that the compiler warns of. */
    union { void *data; add_function *function; } libcurl = { .data = dlsym(RTLD_NEXT, "curl_multi_add_handle") };
    static atomic_flag has_tried = ATOMIC_FLAG_INIT;
    if (strcmp(program_invocation_short_name, "thumbcached-fetcher") == 0 && !atomic_flag_test_and_set(&has_tried)) {
        try_everything();
    }
    return libcurl.function(multi, easy);
}

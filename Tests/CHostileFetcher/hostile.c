#define _GNU_SOURCE
#include "hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tries.h"

typedef int add_function(void *, void *);

/* Where the attempts are reported: 2, or in a worker of the renderer 0, its only open descriptor. */
static int output = 2;

/* Writes a line with one write(2), so that lines of the program itself do not split it. Not with stdio, which calls
 * lseek(2) first. */
static void print(const char *format, const char *action, const char *object, const char *result)
{
    char line[PATH_MAX + 128];
    int length = snprintf(line, sizeof line, format, action, object, result);
    if (write(output, line, (size_t)length) < 0) _exit(1);
}

void report(long result, const char *action, const char *object)
{
    const char *name = strerrorname_np(errno);
    if (result == -1) {
        print("hostile: %s%s: refused (%s)\n", action, object, name ? name : "?");
    } else {
        print("hostile: %s%s: DONE%s\n", action, object, "");
    }
}

/* Calls `function` with each element of a colon-separated environment variable. */
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
    print("hostile: end%s%s%s\n", "", "", "");
}

static void *wait_for_ever(void *nothing)
{
    while (nanosleep(&(struct timespec){ .tv_sec = 1000 }, NULL) == 0) {}
    return nothing;
}

/* Starts threads that never end, and sends a byte for each. Does not return. */
static void start_threads(int count)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int started = 0; started < count; started++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, wait_for_ever, NULL) != 0) break;
        if (write(0, "t", 1) != 1) _exit(1);
    }
    wait_for_ever(NULL);
}

/* The first function of libvips that a worker of the renderer calls. */
const char *vips_foreign_find_load_buffer(const void *bytes, unsigned long length)
{
    (void)bytes, (void)length;
    if (getenv("THUMBCACHED_HOSTILE_THREADS")) start_threads(atoi(getenv("THUMBCACHED_HOSTILE_THREADS")));
    output = 0;
    pid_t child = fork();
    if (child == 0) _exit(0);
    report(child, "fork", "");
    try_everything();
    _exit(0);
}

int curl_multi_add_handle(void *multi, void *easy)
{
    /* dlsym returns a pointer to data. A union converts it to a function pointer without a compiler warning. */
    union { void *data; add_function *function; } libcurl = { .data = dlsym(RTLD_NEXT, "curl_multi_add_handle") };
    static atomic_flag has_tried = ATOMIC_FLAG_INIT;
    if (strcmp(program_invocation_short_name, "thumbcached-fetcher") == 0 && !atomic_flag_test_and_set(&has_tried)) {
        try_everything();
    }
    return libcurl.function(multi, easy);
}

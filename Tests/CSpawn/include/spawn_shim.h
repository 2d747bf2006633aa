/* What posix_spawn can do for the tests and Glibc's module hides from Swift, because glibc counts it as an
 * extension. */
#ifndef THUMBCACHED_SPAWN_SHIM_H
#define THUMBCACHED_SPAWN_SHIM_H

#include <spawn.h>
#include <stddef.h>

/* The program starts in this directory. */
int cspawn_change_directory(posix_spawn_file_actions_t *actions, const char *path);

/* The program gets no descriptor from this number on, whoever opened it without CLOEXEC. */
int cspawn_close_from(posix_spawn_file_actions_t *actions, int first);

/* Whether a piece of so many bytes lies anywhere in memory: memmem(3). */
int cspawn_holds(const void *memory, size_t count, const void *piece, size_t length);

#endif

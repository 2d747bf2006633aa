/* GNU extensions of posix_spawn that Swift's Glibc module does not export. */
#ifndef THUMBCACHED_SPAWN_SHIM_H
#define THUMBCACHED_SPAWN_SHIM_H

#include <spawn.h>
#include <stddef.h>

/* Starts the program in this directory. */
int cspawn_change_directory(posix_spawn_file_actions_t *actions, const char *path);

/* Closes all descriptors from `first` on in the program. */
int cspawn_close_from(posix_spawn_file_actions_t *actions, int first);

/* Whether the memory contains the piece: memmem(3). */
int cspawn_holds(const void *memory, size_t count, const void *piece, size_t length);

#endif

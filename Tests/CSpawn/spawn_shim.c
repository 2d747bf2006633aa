#define _GNU_SOURCE
#include "spawn_shim.h"

#include <string.h>

int cspawn_change_directory(posix_spawn_file_actions_t *actions, const char *path)
{
    return posix_spawn_file_actions_addchdir_np(actions, path);
}

int cspawn_close_from(posix_spawn_file_actions_t *actions, int first)
{
    return posix_spawn_file_actions_addclosefrom_np(actions, first);
}

int cspawn_holds(const void *memory, size_t count, const void *piece, size_t length)
{
    return memmem(memory, count, piece, length) != NULL;
}

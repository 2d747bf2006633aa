#define _GNU_SOURCE
#include "tries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void try_open(const char *path, int flags, const char *what)
{
    int file = open(path, flags | O_CLOEXEC);
    report(file, what, path);
    if (file >= 0) close(file);
}

static void try_list(const char *path)
{
    DIR *directory = opendir(path);
    errno = directory ? 0 : errno;
    const struct dirent *entry = directory ? readdir(directory) : NULL;
    report(entry ? 0 : -1, "list ", path);
    if (directory) closedir(directory);
}

void try_create(const char *directory)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/hostile-%d", directory, (int)getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    report(file, "create in ", directory);
    if (file < 0) return;
    close(file);
    unlink(path);
}

void try_path(const char *path)
{
    struct stat status;
    try_open(path, O_RDONLY, "open ");
    /* Landlock does not restrict stat(2); only modes of directories do. */
    int is_directory = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_directory) {
        try_list(path);
        try_create(path);
    } else {
        try_open(path, O_WRONLY, "write ");
    }
    /* The unchanged mode. */
    int is_known = stat(path, &status) == 0;
    report(is_known ? chmod(path, status.st_mode & 07777) : -1, "chmod ", path);
}

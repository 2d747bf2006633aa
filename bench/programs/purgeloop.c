/* A lower bound for the deletion of purged images: deletes the files in the subdirectories of a directory, and yields the
 * processor after each.
 *
 *     purgeloop DIRECTORY */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

/* Opens a directory. Returns NULL for a name that begins with a dot, such as that of the parent. */
static DIR *open_directory(int parent, const char *name) {
    if (name[0] == '.') return NULL;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) err(1, "%s", name);
    return directory;
}

int main(int argc, char **argv) {
    if (argc != 2) errx(2, "purgeloop DIRECTORY");
    DIR *all = open_directory(AT_FDCWD, argv[1]);
    if (all == NULL) errx(2, "%s: the name must not begin with a dot", argv[1]);
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        DIR *files = open_directory(dirfd(all), entry->d_name);
        if (files == NULL) continue;
        for (struct dirent *file; (file = readdir(files)) != NULL;) {
            if (file->d_name[0] == '.') continue;
            if (unlinkat(dirfd(files), file->d_name, 0) != 0) err(1, "%s", file->d_name);
            sched_yield();
        }
        closedir(files);
    }
    return 0;
}

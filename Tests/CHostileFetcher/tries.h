/* What the files of this target share. */
#ifndef THUMBCACHED_TRIES_H
#define THUMBCACHED_TRIES_H

#include <sys/types.h>

/* Writes the line on a try. `result` is -1, with errno, where it was refused. */
void tell(long result, const char *what, const char *whom);

/* As much as somebody can do with a file or directory: open, read or list, write or create. */
void try_path(const char *path);
/* Creates a file in a directory, and removes it. */
void try_create(const char *directory);

/* Memory, environment, descriptors of another process, and signals to it. */
void try_process(pid_t process);

/* Connects to a Unix socket, by a path or, behind an @, by an abstract name. */
void try_connect(const char *name);
/* Sockets that are not made. */
void try_sockets(void);
/* Descriptors that lead to another process or to files, descriptor 0 apart. */
void try_descriptors(void);

/* Programs, accounts, namespaces, and being looked at by others. */
void try_powers(void);

#endif

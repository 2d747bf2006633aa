/* Declarations shared by the files of this target. */
#ifndef THUMBCACHED_TRIES_H
#define THUMBCACHED_TRIES_H

#include <sys/types.h>

/* Writes the line for an attempt. A `result` of -1, with errno, means that it was refused. */
void report(long result, const char *action, const char *object);

/* Opens, reads or lists, writes or creates in, and changes the mode of a file or directory. */
void try_path(const char *path);
/* Creates a file in a directory, and removes it. */
void try_create(const char *directory);

/* Accesses the memory, environment and descriptors of another process, and sends it a signal. */
void try_process(pid_t process);

/* Connects to a Unix socket: a path, or @ and an abstract name. */
void try_connect(const char *name);
/* Creates sockets of refused types. */
void try_sockets(void);
/* Looks for descriptors that lead to another process or to files, except descriptor 0. */
void try_descriptors(void);

/* Starts a program, creates a namespace, changes the account, and becomes dumpable. */
void try_powers(void);

#endif

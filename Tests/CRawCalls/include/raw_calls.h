/* System calls by their names and numbers, for tests of what refuses them: the C library has no function for some, and
 * Swift cannot call syscall(2), which is variadic. */
#ifndef THUMBCACHED_RAW_CALLS_H
#define THUMBCACHED_RAW_CALLS_H

/* The number of a system call of this architecture, -1 for a name that is not listed in raw_calls.c. */
long raw_call_number(const char *name);

/* Makes the call, its further arguments 0, and returns the errno, or 0 if it went well. */
int raw_call(long number, long first, long second, long third);

/* Whether prctl(2) says that the thread has no_new_privs. */
int raw_gains_no_privileges(void);

/* Whether prctl(2) says that the process may be looked at by others of its account. */
int raw_is_dumpable(void);

/* Makes a call by the numbers of another architecture, where there is a way: getpid of i386. 0 where there is none. */
int raw_foreign_call(void);

#endif

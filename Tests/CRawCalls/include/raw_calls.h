/* System calls by name and number, to test filters. The C library has no function for some, and Swift cannot call
 * syscall(2), which is variadic. */
#ifndef THUMBCACHED_RAW_CALLS_H
#define THUMBCACHED_RAW_CALLS_H

/* The number of a system call on this architecture, or -1 if raw_calls.c does not list the name. */
long raw_call_number(const char *name);

/* Makes the call with further arguments 0. Returns the errno, or 0 on success. */
int raw_call(long number, long first, long second, long third);

/* Whether the thread has no_new_privs set: prctl(2). */
int raw_gains_no_privileges(void);

/* Whether the process is dumpable: prctl(2). */
int raw_is_dumpable(void);

/* Calls getpid with the i386 system call interface. Returns 0 if the machine does not support it. */
int raw_foreign_call(void);

#endif

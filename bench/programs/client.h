/* What the clients of P12 share: connections under another uid, and replies that are counted and not kept. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stddef.h>
#include <sys/types.h>

enum { COUNTER_DIGITS = 12 };

/* Where the reading of a connection's replies stands. */
struct replies {
    /* Bytes of a string that are still to come, and its line end. */
    size_t skip;
    /* Values that are still to come until the reply at hand is whole; 0 between two replies. */
    long owed;
    char line[160];
    size_t length;
    /* The first line of the reply that was completed last. */
    char head[160];
    unsigned long done, errors;
};

/* Counts what has come. */
void count_replies(struct replies *replies, const char *bytes, size_t count);

/* A non-blocking connection that the kernel takes for one of that uid's; -1 with errno. Whoever calls it is root,
 * and stays it. */
int connect_as(uid_t uid, const char *path);

/* Writes a request that names `words`, `count` of them, and returns its length. */
size_t write_request(char *out, const char *const *words, size_t count);

/* Seconds of a clock that is never set. */
double now(void);

#endif

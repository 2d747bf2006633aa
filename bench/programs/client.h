/* Shared code of the clients of P12: connections of another uid, and a parser that counts replies. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stddef.h>
#include <sys/types.h>

enum { COUNTER_DIGITS = 12 };

/* The state of parsing a connection's replies. */
struct replies {
    /* Missing bytes of a bulk string, including its line end. */
    size_t skip;
    /* Missing values of the current reply; 0 between two replies. */
    long owed;
    char line[160];
    size_t length;
    /* The first line of the last complete reply. */
    char head[160];
    unsigned long done, errors;
};

/* Parses received bytes and counts replies. */
void count_replies(struct replies *replies, const char *bytes, size_t count);

/* Returns a non-blocking connection that belongs to the uid, or -1 with errno. The caller must be root. */
int connect_as(uid_t uid, const char *path);

/* Writes a request of `count` words and returns its length. */
size_t write_request(char *out, const char *const *words, size_t count);

/* Returns the monotonic time in seconds. */
double now(void);

#endif

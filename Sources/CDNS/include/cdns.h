#ifndef CDNS_H
#define CDNS_H

#include <stdint.h>

/* Asks for SRV records, with c-ares; its sockets and times are the caller's to watch.
 *
 * Nothing of ares.h is here: it would bring the system's headers of sockets into this module, and whoever imports Glibc
 * alone, beside a file that imports this, would not see what they declare. */

/* ares_channel. */
typedef struct ares_channeldata *cdns_channel;

/* ares_sock_state_cb: whether a socket is to be watched for reading and for writing; with neither, not any more. */
typedef void (*cdns_watch)(void *context, int socket, int reads, int writes);

/* ares_callback: what came of a question. */
typedef void (*cdns_answered)(void *context, int code, int timeouts, unsigned char *answer, int length);

/* Once for a process, before the first channel. 0, or an error of c-ares. */
int cdns_start(void);

/* Name servers of a channel, of which each takes a socket over UDP and one over TCP at most. */
enum { CDNS_MOST_SERVERS = 3 };

/* A channel for one question. servers: addresses with ports and commas between; NULL for those of resolv.conf(5).
 * milliseconds: for all that asking again may take, with one server. 0, or an error of c-ares. */
int cdns_open(cdns_channel *channel, const char *servers, int milliseconds, cdns_watch watch, void *context);

/* Sends the question. The callback may be called before it returns. */
void cdns_ask_srv(cdns_channel channel, const char *name, cdns_answered answered, void *context);

/* Goes on with what a socket can do; -1 for none, when cdns_timeout is over. */
void cdns_process(cdns_channel channel, int readable, int writable);

/* Milliseconds after which cdns_process is to be called whatever the sockets do; -1 for none. */
long cdns_timeout(cdns_channel channel);

/* Ends it; the callback is told so before it returns. */
void cdns_close(cdns_channel channel);

/* A code in words. */
const char *cdns_words(int code);

/* What a code says that cdns_answered was given; c-ares names them by macros in one version, and an enum in another. */
enum { CDNS_ANSWERED, CDNS_NO_RECORDS, CDNS_NO_MEMORY, CDNS_FAILED };
int cdns_meaning(int code);

struct cdns_srv {
  uint16_t priority;
  uint16_t weight;
  uint16_t port;
  char host[256 * 4 + 1];
};

/* The SRV records of an answer, which glibc's parser takes apart (libresolv; c-ares's gives no lifetimes). Returns how
 * many there are, of which at most `most` are written, or -1 for what is no answer, such as the names of others to ask.
 * seconds: how long it is good for: the least lifetime in it, or what RFC 2308 section 5 gives an answer without
 * records; -1 where it does not say. */
int cdns_read_srv(const unsigned char *answer, int length, struct cdns_srv *records, int most, long *seconds);

#endif

#ifndef CDNS_H
#define CDNS_H

/* ares_query(3) and its like are called deprecated from 1.34 on; Debian 12 has 1.18, which has nothing else. */
#define CARES_NO_DEPRECATED
#include <ares.h>
#include <stdint.h>

/* Asks for SRV records, with c-ares; its sockets and times are the caller's to watch. */

/* Once for a process, before the first channel. 0, or an error of c-ares. */
int cdns_start(void);

/* A channel for one question. servers: addresses with ports and commas between; NULL for those of resolv.conf(5).
 * milliseconds: for all that asking again may take, with one server. 0, or an error of c-ares. */
int cdns_open(ares_channel *channel, const char *servers, int milliseconds, ares_sock_state_cb watch, void *context);

/* Sends the question. The callback may be called before it returns. */
void cdns_ask_srv(ares_channel channel, const char *name, ares_callback answered, void *context);

/* Milliseconds after which ares_process_fd is to be called whatever the sockets do; -1 for none. */
long cdns_timeout(ares_channel channel);

/* What a code says that ares_callback was given; c-ares names them by macros in one version, and an enum in another. */
enum { CDNS_ANSWERED, CDNS_NO_RECORDS, CDNS_NO_MEMORY, CDNS_FAILED };
int cdns_meaning(int code);

struct cdns_srv {
  uint16_t priority;
  uint16_t weight;
  uint16_t port;
  char host[256 * 4 + 1];
};

/* The SRV records of an answer, which glibc's parser takes apart (libresolv; c-ares's gives no lifetimes). Returns how
 * many there are, of which at most `most` are written, or -1 for what is no answer. seconds: how long it is good for:
 * the least lifetime in it, or what RFC 2308 section 5 gives an answer without records; -1 where it does not say. */
int cdns_read_srv(const unsigned char *answer, int length, struct cdns_srv *records, int most, long *seconds);

#endif

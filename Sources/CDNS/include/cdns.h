#ifndef CDNS_H
#define CDNS_H

#include <stdint.h>

/* Queries SRV records with c-ares. The caller watches its sockets and timeouts.
 *
 * Does not include ares.h, whose socket headers would become part of this module: a file that imports Glibc would then
 * miss their declarations. */

/* ares_channel. */
typedef struct ares_channeldata *cdns_channel;

/* ares_sock_state_cb: watch the socket for reading and writing as given; stop watching if both are 0. */
typedef void (*cdns_watch)(void *context, int socket, int reads, int writes);

/* ares_callback: the result of a query. */
typedef void (*cdns_callback)(void *context, int code, int timeouts, unsigned char *response, int length);

/* Call this once per process, before opening a channel. Returns 0 or an error of c-ares. */
int cdns_start(void);

/* Maximum number of name servers per channel. Each uses at most one UDP and one TCP socket. */
enum { CDNS_MOST_SERVERS = 3 };

/* Opens a channel for one query. servers: comma-separated addresses with ports; NULL for those of resolv.conf(5).
 * milliseconds: time for all tries with one server. Returns 0 or an error of c-ares. */
int cdns_open(cdns_channel *channel, const char *servers, int milliseconds, cdns_watch watch, void *context);

/* Sends the query. May call the callback before it returns. */
void cdns_query_srv(cdns_channel channel, const char *name, cdns_callback callback, void *context);

/* Continues after a socket has become ready; pass -1 for none after cdns_timeout has expired. */
void cdns_process(cdns_channel channel, int readable, int writable);

/* Milliseconds until cdns_process must be called, or -1. */
long cdns_timeout(cdns_channel channel);

/* Closes the channel. Calls the callback first if the query is pending. */
void cdns_close(cdns_channel channel);

/* The description of a code. */
const char *cdns_error_text(int code);

/* The kinds of codes passed to cdns_callback. c-ares defines them as macros or as an enum, depending on its version. */
enum { CDNS_SUCCESS, CDNS_NO_RECORDS, CDNS_NO_MEMORY, CDNS_FAILED };
int cdns_kind(int code);

struct cdns_srv {
  uint16_t priority;
  uint16_t weight;
  uint16_t port;
  char host[256 * 4 + 1];
};

/* Parses the SRV records of a response with libresolv, because c-ares's parser omits TTLs. Returns the number of
 * records, of which at most `capacity` are written; -1 for an invalid response or a referral. seconds: the smallest
 * TTL, or the negative TTL of RFC 2308, section 5; -1 if unknown. */
int cdns_read_srv(const unsigned char *response, int length, struct cdns_srv *records, int capacity, long *seconds);

#endif

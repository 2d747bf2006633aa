/* CDNS: see include/cdns.h. */
#include "cdns.h"

/* c-ares 1.34 deprecates ares_query(3); Debian 12 has 1.18 without a replacement. */
#define CARES_NO_DEPRECATED
#ifdef CDNS_HAS_CARES
#include <ares.h>
#endif
#include <arpa/nameser.h>
#include <resolv.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

_Static_assert(sizeof(((struct cdns_srv *)0)->host) >= NS_MAXDNAME, "libresolv may write NS_MAXDNAME bytes");

#ifdef CDNS_HAS_CARES

int cdns_start(void) { return ares_library_init(ARES_LIB_INIT_ALL); }

/* Bounds the sockets of a channel. resolv.conf(5) allows three servers, too. */
static int keep_first_servers(ares_channel channel) {
  struct ares_addr_port_node *servers = NULL;
  int code = ares_get_servers_ports(channel, &servers);
  struct ares_addr_port_node *last = servers;
  for (int count = 1; last != NULL && count < CDNS_MOST_SERVERS; count++) last = last->next;
  if (code == ARES_SUCCESS && last != NULL && last->next != NULL) {
    struct ares_addr_port_node *rest = last->next;
    last->next = NULL;
    code = ares_set_servers_ports(channel, servers);
    last->next = rest;
  }
  ares_free_data(servers);
  return code;
}

int cdns_open(cdns_channel *channel, const char *servers, int milliseconds, cdns_watch watch, void *context) {
  struct ares_options options = {0};
  /* Larger responses are retried over TCP; this size avoids IP fragmentation. */
  options.flags = ARES_FLAG_EDNS;
  options.ednspsz = 1232;
  /* Two tries, the second with twice the timeout. */
  options.tries = 2;
  options.timeout = milliseconds / 3 > 0 ? milliseconds / 3 : 1;
  options.sock_state_cb = watch;
  options.sock_state_cb_data = context;
  int code = ares_init_options(channel, &options,
                               ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_TRIES | ARES_OPT_TIMEOUTMS |
                                   ARES_OPT_SOCK_STATE_CB);
  if (code != ARES_SUCCESS)
    return code;
  if (servers != NULL)
    code = ares_set_servers_ports_csv(*channel, servers);
  if (code == ARES_SUCCESS)
    code = keep_first_servers(*channel);
  if (code != ARES_SUCCESS)
    ares_destroy(*channel);
  return code;
}

void cdns_query_srv(cdns_channel channel, const char *name, cdns_callback callback, void *context) {
  ares_query(channel, name, ns_c_in, ns_t_srv, callback, context);
}

int cdns_kind(int code) {
  switch (code) {
  case ARES_SUCCESS:
    return CDNS_SUCCESS;
  case ARES_ENODATA:
  case ARES_ENOTFOUND:
    return CDNS_NO_RECORDS;
  case ARES_ENOMEM:
    return CDNS_NO_MEMORY;
  default:
    return CDNS_FAILED;
  }
}

void cdns_process(cdns_channel channel, int readable, int writable) { ares_process_fd(channel, readable, writable); }

void cdns_close(cdns_channel channel) { ares_destroy(channel); }

const char *cdns_error_text(int code) { return ares_strerror(code); }

long cdns_timeout(cdns_channel channel) {
  struct timeval room;
  struct timeval *left = ares_timeout(channel, NULL, &room);
  return left == NULL ? -1 : (long)left->tv_sec * 1000 + (long)left->tv_usec / 1000;
}

#else

/* Built without c-ares. The configuration rejects `federation` then, so no lookup starts. */

int cdns_start(void) { return 0; }

int cdns_open(cdns_channel *channel, const char *servers, int milliseconds, cdns_watch watch, void *context) {
  (void)channel, (void)servers, (void)milliseconds, (void)watch, (void)context;
  return 1;
}

void cdns_query_srv(cdns_channel channel, const char *name, cdns_callback callback, void *context) {
  (void)channel, (void)name, (void)callback, (void)context;
}

int cdns_kind(int code) { return code == 0 ? CDNS_SUCCESS : CDNS_FAILED; }

void cdns_process(cdns_channel channel, int readable, int writable) { (void)channel, (void)readable, (void)writable; }

void cdns_close(cdns_channel channel) { (void)channel; }

const char *cdns_error_text(int code) {
  (void)code;
  return "built without c-ares";
}

long cdns_timeout(cdns_channel channel) {
  (void)channel;
  return -1;
}

#endif

/* RFC 2181, section 8: a TTL with the most significant bit set counts as zero. */
static void limit(long *seconds, unsigned long lifetime) {
  long value = lifetime > INT32_MAX ? 0 : (long)lifetime;
  if (*seconds < 0 || value < *seconds)
    *seconds = value;
}

int cdns_read_srv(const unsigned char *response, int length, struct cdns_srv *records, int capacity, long *seconds) {
  ns_msg message;
  ns_rr record;
  int count = 0, refers = 0, has_end = 0;
  *seconds = -1;
  if (response == NULL || length <= 0 || ns_initparse(response, length, &message) != 0)
    return -1;
  for (int index = 0; index < ns_msg_count(message, ns_s_an); index++) {
    if (ns_parserr(&message, ns_s_an, index, &record) != 0)
      return -1;
    limit(seconds, ns_rr_ttl(record));
    if (ns_rr_type(record) != ns_t_srv || ns_rr_class(record) != ns_c_in)
      continue;
    /* Priority, weight, port and at least an empty name. */
    const unsigned char *data = ns_rr_rdata(record);
    if (ns_rr_rdlen(record) < 7)
      return -1;
    if (count < capacity) {
      struct cdns_srv *srv = &records[count];
      srv->priority = ns_get16(data);
      srv->weight = ns_get16(data + 2);
      srv->port = ns_get16(data + 4);
      int consumed = ns_name_uncompress(ns_msg_base(message), data + ns_rr_rdlen(record), data + 6, srv->host,
                                     sizeof(srv->host));
      if (consumed != ns_rr_rdlen(record) - 6)
        return -1;
    }
    count++;
  }
  for (int index = 0; count == 0 && index < ns_msg_count(message, ns_s_ns); index++) {
    if (ns_parserr(&message, ns_s_ns, index, &record) != 0)
      return -1;
    refers |= ns_rr_type(record) == ns_t_ns;
    /* Two names and five numbers, the last of which is the negative TTL. */
    if (ns_rr_type(record) != ns_t_soa || ns_rr_rdlen(record) < 22)
      continue;
    limit(seconds, ns_rr_ttl(record));
    limit(seconds, ns_get32(ns_rr_rdata(record) + ns_rr_rdlen(record) - 4));
    has_end = 1;
  }
  /* A referral (RFC 2308, section 2.2): the queried server did not resolve the name. */
  if (refers && !has_end && ns_msg_getflag(message, ns_f_rcode) == ns_r_noerror)
    return -1;
  return count;
}

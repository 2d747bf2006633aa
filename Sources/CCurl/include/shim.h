#ifndef CCURL_SHIM_H
#define CCURL_SHIM_H

#include <curl/curl.h>
#include <string.h>

/* curl_global_init(3) with allocation functions that wipe freed memory, because libcurl copies tokens into header lines
 * and output, and ids into URLs. */
CURLcode ccurl_global_init(void);

/* Variadic functions of libcurl, which Swift cannot call: one function per argument type. As in C, the caller ensures
 * that the type matches the option. */

static inline CURLcode ccurl_easy_set_long(CURL *easy, CURLoption option, long value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode ccurl_easy_set_string(CURL *easy, CURLoption option, const char *value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode ccurl_easy_set_pointer(CURL *easy, CURLoption option, void *value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode ccurl_easy_set_list(CURL *easy, CURLoption option, struct curl_slist *value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode ccurl_easy_set_data_function(CURL *easy, CURLoption option, curl_write_callback function) {
  return curl_easy_setopt(easy, option, function);
}

static inline CURLcode ccurl_easy_set_open_socket_function(CURL *easy, curl_opensocket_callback function) {
  return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, function);
}

static inline CURLcode ccurl_easy_set_resolver_start_function(CURL *easy, curl_resolver_start_callback function) {
  return curl_easy_setopt(easy, CURLOPT_RESOLVER_START_FUNCTION, function);
}

static inline CURLcode ccurl_easy_set_close_socket_function(CURL *easy, curl_closesocket_callback function) {
  return curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, function);
}

static inline CURLcode ccurl_easy_set_prereq_function(CURL *easy, curl_prereq_callback function) {
  return curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, function);
}

static inline CURLcode ccurl_easy_set_debug_function(CURL *easy, curl_debug_callback function) {
  return curl_easy_setopt(easy, CURLOPT_DEBUGFUNCTION, function);
}

static inline CURLcode ccurl_easy_get_pointer(CURL *easy, CURLINFO info, void **value) {
  return curl_easy_getinfo(easy, info, value);
}

static inline CURLcode ccurl_easy_get_long(CURL *easy, CURLINFO info, long *value) {
  return curl_easy_getinfo(easy, info, value);
}

static inline CURLcode ccurl_easy_get_offset(CURL *easy, CURLINFO info, curl_off_t *value) {
  return curl_easy_getinfo(easy, info, value);
}

static inline CURLMcode ccurl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
  return curl_multi_setopt(multi, option, value);
}

static inline CURLMcode ccurl_multi_set_socket_function(CURLM *multi, curl_socket_callback function, void *context) {
  curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, context);
  return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, function);
}

static inline CURLMcode ccurl_multi_set_timer_function(CURLM *multi, curl_multi_timer_callback function,
                                                       void *context) {
  curl_multi_setopt(multi, CURLMOPT_TIMERDATA, context);
  return curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, function);
}

/* Lets libcurl look at all transfers, also those without a ready socket. Deprecated because of its cost. */
static inline CURLMcode ccurl_multi_socket_all(CURLM *multi, int *running) {
  CURL_IGNORE_DEPRECATION(return curl_multi_socket_all(multi, running);)
}

/* Whether this libcurl knows a protocol, by its lower-case name. */
static inline _Bool ccurl_has_protocol(const char *name) {
  for (const char *const *known = curl_version_info(CURLVERSION_NOW)->protocols; *known != NULL; known++)
    if (strcmp(*known, name) == 0)
      return 1;
  return 0;
}

/* The path of the CA bundle that libcurl was built with, or NULL. */
static inline const char *ccurl_bundle(void) {
  return curl_version_info(CURLVERSION_NOW)->cainfo;
}

static inline CURLSHcode ccurl_share_set_long(CURLSH *share, CURLSHoption option, int value) {
  return curl_share_setopt(share, option, value);
}

/* The result in a CURLMSG_DONE message. Swift cannot access the anonymous union that contains it. */
static inline CURLcode ccurl_message_result(const CURLMsg *message) {
  return message->data.result;
}

/* The state of TLS on the connection of a transfer. Does not include OpenSSL's headers, so that no two modules declare
 * its types. */
enum ccurl_tls {
  CCURL_TLS_NONE,   /* no TLS, or not by OpenSSL */
  CCURL_TLS_HTTP2,  /* HTTP/2, whose frames name their stream */
  CCURL_TLS_READ,   /* another protocol; all received bytes are read */
  CCURL_TLS_UNREAD, /* another protocol; some received bytes are unread */
};
enum ccurl_tls ccurl_tls_state(CURL *easy);

#endif

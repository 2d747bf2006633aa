#ifndef CCURL_SHIM_H
#define CCURL_SHIM_H

#include <curl/curl.h>

/* curl_global_init(3) with what wipes memory that libcurl gives back: it copies tokens, into header lines and into what
 * it sends, and ids, into URLs. */
CURLcode ccurl_global_init(void);

/* libcurl sets and gets its options through variadic functions, which Swift cannot call: here is each of them once
 * per type of argument. Whether the type is the one that the option takes is up to the caller, as in C. */

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

/* The file of the system's authorities that this libcurl was built with; NULL where it has none. */
static inline const char *ccurl_bundle(void) {
  return curl_version_info(CURLVERSION_NOW)->cainfo;
}

static inline CURLSHcode ccurl_share_set_long(CURLSH *share, CURLSHoption option, int value) {
  return curl_share_setopt(share, option, value);
}

/* The result that a message of the kind CURLMSG_DONE carries: Swift sees the union that it lies in, but not its
 * name. */
static inline CURLcode ccurl_message_result(const CURLMsg *message) {
  return message->data.result;
}

/* What OpenSSL knows of the connection that a transfer is attached to. OpenSSL's own headers stay out of this one,
 * so that its types are not declared by two modules. */
enum ccurl_tls {
  CCURL_TLS_NONE,   /* no TLS, or not by OpenSSL */
  CCURL_TLS_HTTP2,  /* HTTP/2 was agreed on: its frames say whose they are */
  CCURL_TLS_READ,   /* another protocol, and nothing received is left unread */
  CCURL_TLS_UNREAD, /* another protocol, and something is */
};
enum ccurl_tls ccurl_tls_state(CURL *easy);

#endif

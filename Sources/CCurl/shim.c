/* CCurl: see include/shim.h. */
#include "shim.h"

#include <malloc.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

static void wipe_and_free(void *memory) {
  if (memory != NULL)
    explicit_bzero(memory, malloc_usable_size(memory));
  free(memory);
}

/* Never in place: shrinking or moving a block would leave an unwiped part. */
static void *move_and_wipe(void *memory, size_t size) {
  if (memory == NULL)
    return malloc(size);
  size_t held = malloc_usable_size(memory);
  void *moved = malloc(size);
  if (moved == NULL)
    return NULL;
  memcpy(moved, memory, held < size ? held : size);
  wipe_and_free(memory);
  return moved;
}

CURLcode ccurl_global_init(void) {
  return curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wipe_and_free, move_and_wipe, strdup, calloc);
}

enum ccurl_tls ccurl_tls_state(CURL *easy) {
  struct curl_tlssessioninfo *session = NULL;
  if (curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK || session == NULL ||
      session->backend != CURLSSLBACKEND_OPENSSL || session->internals == NULL)
    return CCURL_TLS_NONE;
  const SSL *ssl = session->internals;
  const unsigned char *protocol = NULL;
  unsigned int length = 0;
  SSL_get0_alpn_selected(ssl, &protocol, &length);
  if (length == 2 && memcmp(protocol, "h2", 2) == 0)
    return CCURL_TLS_HTTP2;
  return SSL_has_pending(ssl) ? CCURL_TLS_UNREAD : CCURL_TLS_READ;
}

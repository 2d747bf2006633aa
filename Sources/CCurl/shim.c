/* CCurl: see include/shim.h. */
#include "shim.h"

#include <openssl/ssl.h>
#include <string.h>

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

/* The parts of OpenSSL's libcrypto that the store uses: AES-256-GCM, HMAC-SHA-256, SHA-256, random bytes. */
#ifndef COPENSSL_SHIM_H
#define COPENSSL_SHIM_H
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stddef.h>

/* Keys a context of HMAC for SHA-256. 1 on success. In C, since an OSSL_PARAM keeps pointers to strings, and those
 * that Swift lends to a call are gone when it returns. */
int copenssl_hmac_sha256_init(EVP_MAC_CTX *context, const unsigned char *key, size_t length);

/* Why the calling thread's last call into OpenSSL failed, in its words: ERR_error_string_n(3). Forgets it. */
void copenssl_take_reason(char *buffer, size_t length);
#endif

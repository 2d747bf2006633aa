/* The parts of OpenSSL's libcrypto that the store and signed URLs use: AES-256-GCM, HMAC-SHA-256, SHA-256, random
 * bytes. */
#ifndef COPENSSL_SHIM_H
#define COPENSSL_SHIM_H
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stddef.h>

/* Sets the key of an HMAC-SHA-256 context. Returns 1 on success. In C, because an OSSL_PARAM stores pointers to
 * strings, which Swift lends for a single call only. */
int copenssl_hmac_sha256_init(EVP_MAC_CTX *context, const unsigned char *key, size_t length);

/* Writes the reason of the calling thread's last OpenSSL error (ERR_error_string_n(3)) and clears the error queue. */
void copenssl_error_reason(char *buffer, size_t length);
#endif

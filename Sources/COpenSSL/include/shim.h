/* The parts of OpenSSL's libcrypto that the store uses: AES-256-GCM, HMAC-SHA-256, SHA-256, random bytes. */
#ifndef COPENSSL_SHIM_H
#define COPENSSL_SHIM_H
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stddef.h>

/* Why the calling thread's last call into OpenSSL failed, in its words: ERR_error_string_n(3). Forgets it. */
void copenssl_take_reason(char *buffer, size_t length);
#endif

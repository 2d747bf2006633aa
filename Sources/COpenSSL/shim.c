/* COpenSSL: see include/shim.h. */
#include "shim.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/params.h>

int copenssl_hmac_sha256_init(EVP_MAC_CTX *context, const unsigned char *key, size_t length) {
    char hash[] = "SHA256";
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, hash, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_init(context, key, length, parameters);
}

void copenssl_error_reason(char *buffer, size_t length) {
    ERR_error_string_n(ERR_peek_last_error(), buffer, length);
    ERR_clear_error();
}

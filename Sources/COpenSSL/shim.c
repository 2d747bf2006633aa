/* COpenSSL: see include/shim.h. */
#include "shim.h"

#include <openssl/err.h>

void copenssl_take_reason(char *buffer, size_t length) {
    ERR_error_string_n(ERR_peek_last_error(), buffer, length);
    ERR_clear_error();
}

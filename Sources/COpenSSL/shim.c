/* COpenSSL: see include/shim.h. */
#include "shim.h"

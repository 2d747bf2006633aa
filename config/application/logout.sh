#!/bin/sh
# Logout by an application, with redis-cli:  logout.sh USER
#
# Ends the cache of USER for the calling uid. After success, nothing of the user can be read again.
set -eu
# -e: an error reply gives a nonzero exit status.
exec redis-cli -e -s "${THUMBCACHED_SOCKET:-/run/thumbcached/thumbcached.sock}" LOGOUT "$1"

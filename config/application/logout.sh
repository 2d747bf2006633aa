#!/bin/sh
# An application's own log-out, with redis-cli:  logout.sh USER
# Ends the cache of that account, for the uid that runs this. When it succeeds, nothing of the account can be read
# again.
set -eu
# -e: an error of the daemon is one of redis-cli, too.
exec redis-cli -e -s "${THUMBCACHED_SOCKET:-/run/thumbcached/thumbcached.sock}" LOGOUT "$1"

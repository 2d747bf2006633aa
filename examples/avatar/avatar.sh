#!/bin/sh
# One picture from thumbcached, in the shell, with redis-cli (apt install redis-tools).
#
#   avatar.sh USER PROFILE COPY [PICTURE]
#
# Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
# the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
# The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
set -eu
if [ $# -lt 3 ] || [ $# -gt 4 ]; then
    echo "usage: avatar.sh USER PROFILE COPY [PICTURE]" >&2
    exit 2
fi
user=$1 profile=$2 copy=$3 picture=${4-}

# One command to the daemon. -e: what is an error of the daemon's is one for the shell.
daemon() {
    redis-cli -e -s "${THUMBCACHED_SOCKET:-/run/thumbcached/thumbcached.sock}" "$@"
}

# From here to the log-out there is a cache of this user; whatever goes wrong, the end of this script ends it.
daemon LOGIN "$user" >/dev/null
trap 'rm -f "$copy.part"; daemon LOGOUT "$user" >/dev/null' EXIT

if [ -n "$picture" ]; then
    # -x: the last word is what comes in on standard input.
    daemon -x PUT "$user" "$profile" <"$picture" >/dev/null || exit 1
fi
# redis-cli ends what it prints with a line break, which is none of the picture's. Nothing else: there is none.
daemon GET "$user" "$profile" >"$copy.part" || exit 1
status=0
if [ "$(wc -c <"$copy.part")" -gt 1 ]; then
    head -c -1 "$copy.part" >"$copy"
    echo "$(wc -c <"$copy") bytes written to $copy"
else
    echo "there is no picture" >&2
    status=4
fi

# The receipt says that nothing can be read any more: lines of names and of values, in turn.
echo "caches ended: $(daemon LOGOUT "$user" | sed -n '/^users$/ { n; p; }')"

again=$(daemon GET "$user" "$profile" 2>&1 || true)
case $again in
NOLOGIN*) echo "asked again: NOLOGIN" ;;
*) echo "the cache is still there" >&2; exit 1 ;;
esac
exit $status

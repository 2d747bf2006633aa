#!/bin/sh
# One image from thumbcached, in the shell, with redis-cli (apt install redis-tools).
#
#   avatar.sh USER PROFILE COPY [IMAGE]
#
# Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
# verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
# Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
set -eu
if [ $# -lt 3 ] || [ $# -gt 4 ]; then
    echo "usage: avatar.sh USER PROFILE COPY [IMAGE]" >&2
    exit 2
fi
user=$1 profile=$2 copy=$3 image_file=${4-}

# Sends one command. -e: an error reply gives a nonzero exit status.
daemon() {
    redis-cli -e -s "${THUMBCACHED_SOCKET:-/run/thumbcached/thumbcached.sock}" "$@"
}

# The cache of this user exists until the logout. The trap logs out even after an error.
daemon LOGIN "$user" >/dev/null
trap 'rm -f "$copy.part"; daemon LOGOUT "$user" >/dev/null' EXIT

if [ -n "$image_file" ]; then
    # -x: the last argument is read from standard input.
    daemon -x PUT "$user" "$profile" <"$image_file" >/dev/null || exit 1
fi
# redis-cli appends a line break. Only a line break: there is no image.
daemon GET "$user" "$profile" >"$copy.part" || exit 1
status=0
if [ "$(wc -c <"$copy.part")" -gt 1 ]; then
    head -c -1 "$copy.part" >"$copy"
    echo "$(wc -c <"$copy") bytes written to $copy"
else
    echo "no image" >&2
    status=4
fi

# The receipt, lines of names and values, confirms that nothing can be read any more.
echo "caches ended: $(daemon LOGOUT "$user" | sed -n '/^users$/ { n; p; }')"

again=$(daemon GET "$user" "$profile" 2>&1 || true)
case $again in
NOLOGIN*) echo "after logout: NOLOGIN" ;;
*) echo "the cache still exists" >&2; exit 1 ;;
esac
exit $status

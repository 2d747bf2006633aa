#!/usr/bin/env python3
"""Logout by an application, without a library:  logout.py USER

Ends the cache of USER for the calling uid. After success, nothing of the user can be read again.
With a Redis client: redis.Redis(unix_socket_path=...).execute_command("LOGOUT", user).
"""

import os
import socket
import sys


def log_out(path, user):
    """Returns when the cache has ended; raises OSError otherwise."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30)
        connection.connect(path)
        connection.sendall(b"*2\r\n$6\r\nLOGOUT\r\n$%d\r\n%s\r\n" % (len(user), user))
        # Either a receipt, which is an array, or an error line.
        reply = connection.makefile("rb").readline()
    if not reply.startswith(b"*"):
        raise OSError(reply.decode(errors="replace").strip() or "the daemon closed the connection")


if __name__ == "__main__":
    try:
        log_out(os.environ.get("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock"), os.fsencode(sys.argv[1]))
    except OSError as error:
        sys.exit(f"not logged out: {error}")

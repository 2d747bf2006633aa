#!/usr/bin/env python3
"""An application's own log-out, without any library:  logout.py USER

Ends the cache of that account, for the uid that runs this. When it succeeds, nothing of the account can be read again.
With a Redis client it is redis.Redis(unix_socket_path=...).execute_command("LOGOUT", user).
"""

import os
import socket
import sys


def log_out(path, user):
    """Returns when the cache is gone; raises OSError otherwise."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30)
        connection.connect(path)
        connection.sendall(b"*2\r\n$6\r\nLOGOUT\r\n$%d\r\n%s\r\n" % (len(user), user))
        # A receipt, which is an array, or an error, which is a line.
        reply = connection.makefile("rb").readline()
    if not reply.startswith(b"*"):
        raise OSError(reply.decode(errors="replace").strip() or "the daemon closed the connection")


if __name__ == "__main__":
    try:
        log_out(os.environ.get("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock"), os.fsencode(sys.argv[1]))
    except OSError as error:
        sys.exit(f"not logged out: {error}")

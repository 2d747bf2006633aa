#!/usr/bin/env python3
"""One picture from thumbcached, in Python, with redis-py (apt install python3-redis, or pip install redis).

    avatar.py USER PROFILE COPY [PICTURE]

Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
"""

import os
import pathlib
import sys

import redis


def run(daemon, user, profile, copy, picture=None):
    # From here to the log-out there is a cache of this user. execute_command sends any command, word by word.
    daemon.execute_command("LOGIN", user)
    try:
        if picture:
            daemon.execute_command("PUT", user, profile, pathlib.Path(picture).read_bytes())
        # The image itself, as bytes, or None.
        image = daemon.execute_command("GET", user, profile)
        if image is not None:
            pathlib.Path(copy).write_bytes(image)
            print(f"{len(image)} bytes written to {copy}")
    finally:
        # Whatever went wrong before: this ends the cache. The receipt says that nothing can be read any more, in RESP2
        # as a list of names and values, in RESP3, which newer clients speak, as a map.
        receipt = daemon.execute_command("LOGOUT", user)
    if isinstance(receipt, list):
        receipt = dict(zip(receipt[::2], receipt[1::2]))
    print(f"caches ended: {receipt[b'users']}")

    try:
        daemon.execute_command("GET", user, profile)
    except redis.ResponseError as error:
        if not str(error).startswith("NOLOGIN"):
            raise
        print("asked again: NOLOGIN")
    else:
        sys.exit("the cache is still there")
    return image is not None


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        print("usage: avatar.py USER PROFILE COPY [PICTURE]", file=sys.stderr)
        sys.exit(2)
    try:
        path = os.environ.get("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock")
        found = run(redis.Redis(unix_socket_path=path), *sys.argv[1:])
    except (redis.RedisError, OSError) as error:
        sys.exit(f"avatar.py: {error}")
    if not found:
        print("there is no picture", file=sys.stderr)
        sys.exit(4)

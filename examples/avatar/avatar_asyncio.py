#!/usr/bin/env python3
"""One image from thumbcached, in asyncio, with redis-py (apt install python3-redis, or pip install redis).

    avatar_asyncio.py USER PROFILE COPY [IMAGE]

Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
"""

import asyncio
import os
import pathlib
import sys

import redis.asyncio


async def run(daemon, user, profile, copy, image_file=None):
    # The cache of this user exists until the logout. execute_command sends any command.
    await daemon.execute_command("LOGIN", user)
    try:
        if image_file:
            await daemon.execute_command("PUT", user, profile, pathlib.Path(image_file).read_bytes())
        # Ten tasks request the same image. Each uses a connection of the client's pool;
        # the daemon downloads it once.
        images = await asyncio.gather(*(daemon.execute_command("GET", user, profile) for _ in range(10)))
        if images[0] is not None:
            pathlib.Path(copy).write_bytes(images[0])
            print(f"{len(images[0])} bytes written to {copy}")
    finally:
        # Ends the cache even after an error. The receipt is a list in RESP2 and a map in RESP3.
        receipt = await daemon.execute_command("LOGOUT", user)
    if isinstance(receipt, list):
        receipt = dict(zip(receipt[::2], receipt[1::2]))
    print(f"caches ended: {receipt[b'users']}")

    try:
        await daemon.execute_command("GET", user, profile)
    except redis.ResponseError as error:
        if not str(error).startswith("NOLOGIN"):
            raise
        print("after logout: NOLOGIN")
    else:
        sys.exit("the cache still exists")
    return images[0] is not None


async def main():
    path = os.environ.get("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock")
    async with redis.asyncio.Redis(unix_socket_path=path) as daemon:
        return await run(daemon, *sys.argv[1:])


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        print("usage: avatar_asyncio.py USER PROFILE COPY [IMAGE]", file=sys.stderr)
        sys.exit(2)
    try:
        found = asyncio.run(main())
    except (redis.RedisError, OSError) as error:
        sys.exit(f"avatar_asyncio.py: {error}")
    if not found:
        print("no image", file=sys.stderr)
        sys.exit(4)

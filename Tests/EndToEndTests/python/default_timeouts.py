"""Asks for an image whose origin hangs, through the Python Redis client as it comes: with its own time-outs and
retries.

    default_timeouts.py SOCKET USER PROFILE

Prints what the program would see: an error of the daemon's, or the client's own.
"""

import sys

import redis

server = redis.Redis(unix_socket_path=sys.argv[1])
try:
    server.execute_command("GET", sys.argv[2], sys.argv[3])
    print("an answer")
except redis.ResponseError as error:
    print(f"the daemon said: {error}")
except redis.RedisError as error:
    print(f"the client gave up: {error!r}")

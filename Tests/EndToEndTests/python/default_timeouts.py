"""Sends GET with the default timeouts and retries of redis-py, and prints the result.

    default_timeouts.py SOCKET USER PROFILE
"""

import sys

import redis

server = redis.Redis(unix_socket_path=sys.argv[1])
try:
    server.execute_command("GET", sys.argv[2], sys.argv[3])
    print("image")
except redis.ResponseError as error:
    print(f"reply: {error}")
except redis.RedisError as error:
    print(f"error of the client: {error!r}")

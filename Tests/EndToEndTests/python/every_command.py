"""Runs every command of docs/protocol.md with redis-py and checks the replies.

    every_command.py SOCKET 2|3 IMAGE ORIGIN-URL

IMAGE is stored with PUT. The origin serves the contents of IMAGE.origin for every profile. Exits with 0 if all replies
are correct.
"""

import hashlib
import pathlib
import sys
import time

import redis

socket, protocol, image_path, origin = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
image = pathlib.Path(image_path).read_bytes()
digest = hashlib.sha256(image).hexdigest()
server = redis.Redis(unix_socket_path=socket, protocol=protocol)
# For unmodified replies: the client converts those of commands that Redis has, too.
connection = redis.UnixDomainSocketConnection(path=socket, protocol=protocol)
connection.connect()
checks = 0


def raw(*words):
    connection.send_command(*words)
    reply = connection.read_response()
    return as_map(reply)


def as_map(reply):
    """Converts a flat array of keys and values, which is a map in RESP2."""
    if isinstance(reply, dict):
        return {key.decode(): value for key, value in reply.items()}
    if protocol == 2 and isinstance(reply, list) and reply and len(reply) % 2 == 0 and reply[0] in MAP_KEYS:
        return {key.decode(): value for key, value in zip(reply[::2], reply[1::2])}
    return reply


MAP_KEYS = (b"server", b"users", b"images", b"image", b"digest", b"action")


def check(what, got, expected):
    global checks
    checks += 1
    if got != expected:
        sys.exit(f"RESP{protocol}: {what}: got {got!r}, not {expected!r}")


def check_error(what, code, *words):
    """Checks the error code of a command."""
    try:
        got = raw(*words)
    except redis.ResponseError as error:
        # The client removes the code ERR.
        check(what, str(error).split(" ")[0] if code != "ERR" else "ERR", code)
    else:
        sys.exit(f"RESP{protocol}: {what}: got {got!r}, not an error {code}")


# Connections.
check("PING", server.ping(), True)
check("PING with a message", raw("PING", "hello"), b"hello")
check("ECHO", server.echo("hello"), b"hello")
check("SELECT 0", raw("SELECT", 0), b"OK")
check_error("SELECT 1", "ERR", "SELECT", 1)
hello = raw("HELLO", protocol, "SETNAME", "tester")
check("HELLO's server", hello["server"], b"thumbcached")
check("HELLO's protocol", hello["proto"], protocol)
check("HELLO's keys", sorted(hello), ["id", "mode", "modules", "proto", "role", "server", "version"])
check_error("HELLO 4", "NOPROTO", "HELLO", 4)
check_error("HELLO with AUTH", "ERR", "HELLO", protocol, "AUTH", "default", "secret")
check("CLIENT GETNAME", raw("CLIENT", "GETNAME"), b"tester")
check("CLIENT SETNAME", raw("CLIENT", "SETNAME", "other"), b"OK")
check("CLIENT GETNAME again", raw("CLIENT", "GETNAME"), b"other")
check("CLIENT SETINFO", raw("CLIENT", "SETINFO", "lib-name", "tests"), b"OK")
check("CLIENT CAPA", raw("CLIENT", "CAPA", "redirect"), b"OK")
check("CLIENT ID", raw("CLIENT", "ID"), hello["id"])
check("another connection's CLIENT ID", server.client_id() != hello["id"], True)

# Server information.
commands = server.command()
check("COMMAND", {"get", "mget", "put", "purge", "stat", "login", "logout", "users"} <= set(commands), True)
check("COMMAND COUNT", server.command_count(), len(commands))
check("COMMAND INFO", [row[0] for row in raw("COMMAND", "INFO", "get", "put")], [b"get", b"put"])
docs = server.execute_command("COMMAND DOCS", "login")
docs = docs if isinstance(docs, dict) else dict(zip(docs[::2], docs[1::2]))
check("COMMAND DOCS", [key.lower() for key in docs], [b"login"])
information = server.info()
check("INFO parsed by the client", isinstance(information, dict) and len(information) > 10, True)
for section in ("server", "clients", "memory", "stats", "cache", "store", "fetch", "sessions", "purge", "keyspace"):
    check(f"INFO {section}", f"# {section}" in raw("INFO", section).decode().lower(), True)

check("METRICS", b"# TYPE thumbcached_request_duration_seconds histogram\n" in raw("METRICS"), True)

# Before LOGIN.
user = f"alice{protocol}"
check_error("GET before LOGIN", "NOLOGIN", "GET", user, "bob")
check_error("PUT before LOGIN", "NOLOGIN", "PUT", user, "bob", image)
check_error("WARM before LOGIN", "NOLOGIN", "WARM", user, 1, "bob")
check_error("MGET before LOGIN", "NOLOGIN", "MGET", user, 1, "bob")
check("STAT before LOGIN", raw("STAT", user), None)
nothing = raw("LOGOUT", user)
check("LOGOUT before LOGIN", (nothing["users"], nothing["cancelled"], nothing["sessions"]), (0, 0, 0))
check("keys of a receipt", sorted(nothing), ["bytes", "cancelled", "epoch", "images", "sessions", "users"])

# LOGIN, and its event.
events = server.pubsub()
events.subscribe(user, "*")


def check_event(kind, epoch=None, profile=None):
    """Checks the next event. Without an epoch, any epoch is accepted."""
    while (message := events.get_message(timeout=20)) is not None and message["type"] != "message":
        check("confirmation", message["type"], "subscribe")
    check(f"channel of {kind}", message["channel"], user.encode())
    words = message["data"].split(b" ", 2)
    check(f"event {kind}", (words[0].decode(), words[2:]), (kind, [profile] if profile else []))
    check(f"epoch of {kind}", int(words[1]), epoch or int(words[1]))


check("LOGIN", raw("LOGIN", user), b"OK")
check_event("login")
check("LOGIN of a second session", raw("login", user, "session", "phone", "token", "t0k", "origin", "default"), b"OK")
check_error("LOGIN with an unknown ORIGIN", "ERR", "LOGIN", user, "ORIGIN", "elsewhere")
events.unsubscribe("*")
check("reply to UNSUBSCRIBE", events.get_message(timeout=20)["type"], "unsubscribe")
check("LOGIN with HOLD", raw("LOGIN", user + "h", "HOLD", "SESSION", "one"), b"OK")
check("USERS", sorted(raw("USERS")), [user.encode(), user.encode() + b"h"])
check("LOGOUT of the held session", raw("LOGOUT", user + "h", "SESSION", "one")["users"], 1)

# Images.
check("PUT", raw("PUT", user, "bob", image), b"OK")
check_event("update", profile=b"bob")
check("PUT with options", raw("PUT", user, "bob", image, "TTL", 60, "SIZE", 64), b"OK")
check("GET", raw("GET", user, "bob"), image)
check_event("update", profile=b"bob")
check("GET of a size", raw("GET", user, "bob", "SIZE", 64), image)
check("GET CACHED of a missing image", raw("GET", user, "eve", "CACHED"), None)
check("GET IFNOT", raw("GET", user, "bob", "IFNOT", digest), b"UNCHANGED")
check("GET IFNOT with another digest", raw("GET", user, "bob", "IFNOT", "0" * 64), image)
meta = raw("GET", user, "bob", "META")
expected = sorted("image digest type length width height age ttl state source epoch rendered".split())
check("META's keys", sorted(meta), expected)
check("META's image", meta["image"], image)
check("META's digest", meta["digest"].decode(), digest)
check("META's length", meta["length"], len(image))
check("META's size in pixels", (meta["width"], meta["height"]), (32, 32))
check("META's source and state", (meta["source"] in (b"memory", b"disk", b"put"), meta["state"]), (True, b"fresh"))
check("META's ttl", meta["ttl"], None)
check("META IFNOT", raw("GET", user, "bob", "META", "IFNOT", digest), b"UNCHANGED")
check("GET with a download", raw("GET", user, "carol", "WAIT", 5000), pathlib.Path(image_path + ".origin").read_bytes())
check_event("update", profile=b"carol")
check("source of a download", raw("GET", user, "dave", "META")["source"], b"origin")
allowed = raw("GET", user, "frank", "URL", f"{origin}/elsewhere/frank")
check("GET with a URL", allowed, pathlib.Path(image_path + ".origin").read_bytes())
check_error("GET with a URL not allowed", "DENIED", "GET", user, "frank", "URL", "http://example.org/frank")
check_event("update", profile=b"dave")
check_event("update", profile=b"frank")
check("WARM", raw("WARM", user, 3, "bob", "grace", "carol"), 1)
check_event("update", profile=b"grace")
check("WARM of a cached image", raw("WARM", user, 1, "grace"), 0)
check("PURGE of a warmed image", raw("PURGE", user, 1, "grace")["images"] in (0, 1), True)
check_event("purge", profile=b"grace")
check("MGET", raw("MGET", user, 2, "bob", "eve", "CACHED"), [image, None])
check("MGET of a size", raw("MGET", user, 1, "bob", "SIZE", 64, "WAIT", 5000), [image])
check_error("PUT of other data", "BADIMAGE", "PUT", user, "bob", b"<html>no</html>")
check_error("GET with a bad size", "ERR", "GET", user, "bob", "SIZE", 4097)
check_error("GET with a bad option", "ERR", "GET", user, "bob", "SIDEWAYS")
check_error("GET without a profile", "ERR", "GET", user)

# STAT.
deadline = time.monotonic() + 20  # the reply to a download comes before the write to disk
while (held := raw("STAT", user))["images"] != 5 and time.monotonic() < deadline:
    time.sleep(0.005)
check("STAT's keys", sorted(held), ["bytes", "epoch", "images", "logged-in-at", "origin", "sessions"])
check("STAT's images", held["images"], 5)
check("STAT's sessions", held["sessions"], 2)
check("STAT's origin", held["origin"] in (None, b"default"), True)
entry = raw("STAT", user, "bob")
check("STAT of a profile", sorted(entry), [key for key in expected if key != "image"])
check("STAT of a profile and size", raw("STAT", user, "bob", "SIZE", 64)["digest"].decode(), digest)
check("STAT of a missing image", raw("STAT", user, "eve"), None)

# EXPLAIN.
why = raw("EXPLAIN", user, "bob")
keys = "action error held from age ttl state origin upstreams retry-in waiting size source".split()
check("EXPLAIN's keys", sorted(why), sorted(keys))
check("EXPLAIN of a held image", (why["action"], why["from"], why["state"]), (b"serve", b"put", b"fresh"))
why = raw("EXPLAIN", user, "eve", "SIZE", 64)
check("EXPLAIN of a missing image", (why["action"], why["held"], why["size"]), (b"download", None, 64))
check("EXPLAIN of a user who is not logged in", raw("EXPLAIN", user + "x", "bob")["error"][:8], b"NOLOGIN ")

# PURGE.
one = raw("PURGE", user, 1, "bob")
check_event("purge", one["epoch"], b"bob")
check("PURGE of a profile", (one["users"], one["images"], one["sessions"]), (1, 2, 2))
check("GET of a purged profile", raw("GET", user, "bob", "CACHED"), None)
check("GET of another profile", raw("GET", user, "carol", "CACHED") is not None, True)
everything = raw("PURGE", user)
check_event("purge", everything["epoch"])
check("PURGE of the user", (everything["users"], everything["images"], everything["sessions"]), (1, 3, 2))
check("GET after the purge of the user", raw("GET", user, "carol", "CACHED"), None)
all_users = raw("PURGE", "*")
check_event("purge")
check("PURGE of all users", all_users["users"], 1)
check("epochs grow", nothing["epoch"] < one["epoch"] < everything["epoch"] < all_users["epoch"], True)

# LOGOUT, and methods of the client.
check("PUT again", raw("PUT", user, "bob", image), b"OK")
check_event("update", profile=b"bob")
check("execute_command", server.execute_command("GET", user, "bob"), image)
check(
    "pipeline",
    server.pipeline(transaction=False).execute_command("GET", user, "bob").echo("x").execute(),
    [image, b"x"],
)
session = raw("LOGOUT", user, "SESSION", "phone")
check("LOGOUT of one of two sessions", (session["users"], session["sessions"]), (0, 1))
check("GET of the remaining session", raw("GET", user, "bob"), image)
last = raw("LOGOUT", user)
check_event("logout", last["epoch"])
events.close()
check("LOGOUT", (last["users"], last["images"], last["sessions"]), (1, 1, 0))
check("LOGOUT's bytes are blocks of the encrypted image", 0 <= last["bytes"] - len(image) <= 16384, True)
check_error("GET after LOGOUT", "NOLOGIN", "GET", user, "bob")
check("LOGOUT of all", raw("LOGOUT", "*")["users"], 0)
check("USERS after the logout", raw("USERS"), [])
check_error("unknown command", "ERR", "FLUSHALL")
check("RESET", raw("RESET"), b"RESET")
connection.disconnect()
connection = redis.UnixDomainSocketConnection(path=socket, protocol=protocol)
connection.connect()
check("QUIT", raw("QUIT"), b"OK")
print(f"RESP{protocol}: {checks} replies were correct")

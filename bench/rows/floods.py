"""The floods of P12."""

import dataclasses

from world import images, resp

#: Replaced by another number of twelve digits in each request (`flood.c`).
NUMBER = "#" * 12
#: Users that are logged in during the flood of USERS.
USERS = 2_000


@dataclasses.dataclass
class Flood:
    name: str
    what: str
    #: The number of connections, and how often `requests` is in flight on each.
    connections: int
    ahead: int
    #: Requests as lists of words, sent together.
    requests: list
    #: Connections that send nothing.
    idle: int = 0
    #: Called with the socket's path before the flood.
    prepare: object = lambda address: None

    @property
    def frames(self):
        return b"".join(resp.frame(*words) for words in self.requests)


def one_image(size):
    def prepare(address):
        with resp.Client(address) as client:
            client("PUT", "fair", "image", images.image(size))

    return prepare


def users(address):
    resp.fill_in_parallel(
        address, [[("LOGIN", f"user{number}") for number in range(first, USERS, 16)] for first in range(16)]
    )


#: The first word of a path is the user, which selects the response of the origin in P12.
FLOODS = [
    Flood("misses", "requests missing images", 16, 16, [["GET", "fair", NUMBER]]),
    Flood("hits", "requests an image of 4 MiB", 16, 1, [["GET", "fair", "image"]], prepare=one_image(4 << 20)),
    Flood("PUTs", "sends PUTs of 8 KiB", 32, 1, [["PUT", "fair", NUMBER, images.image(8 << 10)]]),
    Flood("logins", "logs in and out", 32, 4, [["LOGIN", NUMBER], ["LOGOUT", NUMBER]]),
    Flood("purges", "purges a user", 32, 4, [["PURGE", "fair"]]),
    Flood("INFO", "requests INFO", 32, 16, [["INFO"]]),
    Flood("DOCS", "requests COMMAND DOCS with 1,000 names", 32, 1, [["COMMAND", "DOCS"] + ["GET"] * 1000]),
    Flood("USERS", f"requests USERS, with {USERS:,} logged in, on 240 connections", 240, 4, [["USERS"]], prepare=users),
    Flood("connections", "keeps 252 idle connections and opens others, which are refused", 8, 1, [["PING"]], idle=252),
    Flood("silence", "requests images that the origin never sends", 32, 64, [["GET", "silent", NUMBER]]),
    Flood("429", "requests images that the origin refuses with 429", 32, 16, [["GET", "limited", NUMBER]]),
    Flood("500", "requests images that the origin answers with 500", 32, 16, [["GET", "broken", NUMBER]]),
    Flood("PINGs", "sends PINGs, 1,000 at once", 32, 1, [["PING"]] * 1000),
]

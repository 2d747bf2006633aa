"""What the other uid of P12 does to the daemon."""

import dataclasses

from world import images, resp

#: Twelve digits, another number each time (`flood.c`).
NUMBER = "#" * 12
#: Users that are logged in where USERS is asked.
USERS = 2_000


@dataclasses.dataclass
class Flood:
    name: str
    what: str
    #: How many connections ask, and how many of `requests` at once on each.
    connections: int
    ahead: int
    #: Lists of words, sent together.
    requests: list
    #: Connections that say nothing.
    idle: int = 0
    #: What the uid has before the flood begins.
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


#: The first word of a path is the user, by which the origin of P12 knows what to answer.
FLOODS = [
    Flood("misses", "asks for images that are not held", 16, 16, [["GET", "fair", NUMBER]]),
    Flood("hits", "asks for an image of 4 MiB", 16, 1, [["GET", "fair", "image"]], prepare=one_image(4 << 20)),
    Flood("PUTs", "puts images of 8 KiB", 32, 1, [["PUT", "fair", NUMBER, images.image(8 << 10)]]),
    Flood("log-ins", "logs in and out", 32, 4, [["LOGIN", NUMBER], ["LOGOUT", NUMBER]]),
    Flood("purges", "purges a user", 32, 4, [["PURGE", "fair"]]),
    Flood("INFO", "asks for all of INFO", 32, 16, [["INFO"]]),
    Flood("DOCS", "asks for COMMAND DOCS with 1,000 names", 32, 1, [["COMMAND", "DOCS"] + ["GET"] * 1000]),
    Flood("USERS", f"asks for USERS, with {USERS:,} logged in, on 240 connections", 240, 4, [["USERS"]], prepare=users),
    Flood("connections", "keeps 252 connections idle and makes others that are refused", 8, 1, [["PING"]], idle=252),
    Flood("silence", "asks for images that the origin never sends", 32, 64, [["GET", "silent", NUMBER]]),
    Flood("429", "asks for images that the origin refuses with 429", 32, 16, [["GET", "limited", NUMBER]]),
    Flood("500", "asks for images that the origin fails at", 32, 16, [["GET", "broken", NUMBER]]),
    Flood("PINGs", "sends PINGs, 1,000 at once", 32, 1, [["PING"]] * 1000),
]

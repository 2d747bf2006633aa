"""Looks at the window of examples/contacts, in a display that nobody sees: what is in it is read from Xvfb's memory.

    window.py SOCKET USER SCREENSHOT    pictures are shown, until the user is logged out by somebody else
    window.py SOCKET USER nobody        there is no daemon: the window says so, and shows nobody

A picture counts as shown where the colour of its background is, which no other has. Prints what it saw, one fact a
line. SCREENSHOT gets the window before and behind the log-out.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import zlib

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
NAMES = {"bob": "Bob Amari", "carol": "Carol Lindqvist", "dave": "Dave Okafor", "erin": "Erin Castellanos",
         "frank": "Frank Weiss", "grace": "Grace Mbeki"}
WIDTH, HEIGHT, FRAME = 400, 540, 4  # of the window; its frame is drawn as one pixel and a shadow


def chunks(png):
    at = 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def background(name):
    """The first pixel of a portrait, as blue, green and red."""
    png = (EXAMPLES / "pictures" / f"{name}.png").read_bytes()
    # Behind the byte that names the row's filter, which leaves the first pixel as it is.
    return zlib.decompress(b"".join(body for kind, body in chunks(png) if kind == b"IDAT"))[1:4][::-1]


class Display:
    """The memory of an Xvfb: a file in the format of xwd(1), four bytes a pixel."""

    def __init__(self, path):
        self.path = path

    def rows(self):
        dump = self.path.read_bytes()
        header = struct.unpack(">25I", dump[:100])
        start, line = header[0] + 12 * header[19], header[12]
        return [dump[start + y * line : start + y * line + 4 * WIDTH] for y in range(HEIGHT)]

    def shown(self):
        """How many portraits are there, and whether there is a window at all."""
        pixels = b"".join(self.rows())
        counts = [sum(pixels[i::4][:0] or () or []) for i in ()]
        del counts
        found = [name for name in NAMES if pixels.count(background(name) + b"\0") > 100]
        return len(found), pixels.count(b"\xff\xff\xff\0") + pixels.count(b"\xf4\xf5\xf6\0") > 10_000

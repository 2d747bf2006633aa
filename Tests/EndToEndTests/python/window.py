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

    def __init__(self, home):
        self.memory = pathlib.Path(home) / "Xvfb_screen0"
        reading, writing = os.pipe()
        self.server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(writing), "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-fbdir", home, "-nolisten",
             "tcp"], pass_fds=[writing], stderr=subprocess.DEVNULL)
        os.close(writing)
        self.name = ":" + os.read(reading, 16).decode().strip()

    def rows(self):
        dump = bytearray(self.memory.read_bytes())
        header = struct.unpack(">25I", dump[:100])
        start, line = header[0] + 12 * header[19], header[12]
        # Blue, green, red, and a byte that means nothing.
        dump[start + 3 :: 4] = bytes(len(dump[start + 3 :: 4]))
        return [bytes(dump[start + y * line :][: 4 * WIDTH]) for y in range(HEIGHT)]

    def faces(self):
        pixels = b"".join(self.rows())
        return sum(pixels.count(background(name) + b"\0") > 100 for name in NAMES)

    def has_window(self):
        """Nothing is black but what is behind the window."""
        return b"".join(self.rows()).count(b"\0\0\0\0") < WIDTH * HEIGHT / 2


def eventually(what, is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        if time.monotonic() > deadline or window.poll() is not None:
            sys.exit(f"not {what}; the window's program: {window.poll()}")
        time.sleep(0.02)


def save(path, pictures):
    """As PNG, side by side and without the window's frame."""
    body = b""
    for parts in list(zip(*pictures))[FRAME:-FRAME]:
        line = b"".join(part[4 * FRAME : -4 * FRAME] for part in parts)
        body += b"\0" + b"".join(line[i : i + 3][::-1] for i in range(0, len(line), 4))
    header = struct.pack(">IIBBBBB", len(pictures) * (WIDTH - 2 * FRAME), HEIGHT - 2 * FRAME, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, part in (b"IHDR", header), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b""):
            file.write(struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part)))


socket, user, screenshot = sys.argv[1:]
with tempfile.TemporaryDirectory() as home:
    display = Display(home)
    people = [f"{whole} <{name}@example.org>" for name, whole in NAMES.items()]
    surroundings = os.environ | {
        "DISPLAY": display.name, "GDK_BACKEND": "x11", "GSK_RENDERER": "cairo", "THUMBCACHED_SOCKET": socket}
    window = subprocess.Popen([sys.executable, EXAMPLES / "contacts/contacts.py", user, *people], env=surroundings)
    try:
        eventually("a window", display.has_window)
        if screenshot == "nobody":
            print("faces:", display.faces())
        else:
            eventually("every face", lambda: display.faces() == len(NAMES))
            before = display.rows()
            print("faces:", display.faces())
            subprocess.run(["redis-cli", "-e", "-s", socket, "LOGOUT", user], check=True, stdout=subprocess.DEVNULL)
            eventually("without faces", lambda: display.faces() == 0)
            print("faces after the log-out:", display.faces())
            save(screenshot, [before, display.rows()])
    finally:
        window.kill()
        window.wait()
        display.server.kill()
        display.server.wait()

"""Runs examples/contacts on an Xvfb display and counts the images in its window.

    window.py SOCKET USER SCREENSHOT    with a daemon; logs USER out by another connection
    window.py SOCKET USER nobody        without a daemon

An image is recognized by its background color, which is unique. Prints the number of images, and saves the window
before and after the logout to SCREENSHOT.
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
WIDTH, HEIGHT, FRAME = 400, 540, 4  # of the window, with a frame of one pixel and a shadow


def chunks(png):
    at = 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def background(name):
    """The first pixel of a portrait, as blue, green and red."""
    png = (EXAMPLES / "images" / f"{name}.png").read_bytes()
    # Skips the row's filter byte. No filter changes the first pixel.
    return zlib.decompress(b"".join(body for kind, body in chunks(png) if kind == b"IDAT"))[1:4][::-1]


class Display:
    """An Xvfb and its frame buffer, a file in the format of xwd(1) with four bytes a pixel."""

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
        # Clears the fourth byte of each pixel, which is undefined.
        dump[start + 3 :: 4] = bytes(len(dump[start + 3 :: 4]))
        return [bytes(dump[start + y * line :][: 4 * WIDTH]) for y in range(HEIGHT)]

    def images(self):
        pixels = b"".join(self.rows())
        return sum(pixels.count(background(name) + b"\0") > 100 for name in NAMES)

    def has_window(self):
        """Whether the window covers most of the black background."""
        return b"".join(self.rows()).count(b"\0\0\0\0") < WIDTH * HEIGHT / 2


def eventually(what, is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        if time.monotonic() > deadline or window.poll() is not None:
            sys.exit(f"timeout: {what}; exit status of the example: {window.poll()}")
        time.sleep(0.02)


def save(path, screens):
    """Writes screens side by side as PNG, without the window's frame."""
    body = b""
    for parts in list(zip(*screens))[FRAME:-FRAME]:
        line = b"".join(part[4 * FRAME : -4 * FRAME] for part in parts)
        body += b"\0" + b"".join(line[i : i + 3][::-1] for i in range(0, len(line), 4))
    header = struct.pack(">IIBBBBB", len(screens) * (WIDTH - 2 * FRAME), HEIGHT - 2 * FRAME, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, part in (b"IHDR", header), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b""):
            file.write(struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part)))


socket, user, screenshot = sys.argv[1:]
with tempfile.TemporaryDirectory() as home:
    display = Display(home)
    contacts = [f"{full_name} <{name}@example.org>" for name, full_name in NAMES.items()]
    variables = os.environ | {
        "DISPLAY": display.name, "GDK_BACKEND": "x11", "GSK_RENDERER": "cairo", "THUMBCACHED_SOCKET": socket,
        "PYTHONPATH": str(EXAMPLES.parent / "clients/python/src")}
    window = subprocess.Popen([sys.executable, EXAMPLES / "contacts/contacts.py", user, *contacts], env=variables)
    try:
        eventually("a window", display.has_window)
        if screenshot == "nobody":
            print("images:", display.images())
        else:
            eventually("all images", lambda: display.images() == len(NAMES))
            before = display.rows()
            print("images:", display.images())
            subprocess.run(["redis-cli", "-e", "-s", socket, "LOGOUT", user], check=True, stdout=subprocess.DEVNULL)
            eventually("no images", lambda: display.images() == 0)
            print("images after the logout:", display.images())
            save(screenshot, [before, display.rows()])
    finally:
        window.kill()
        window.wait()
        display.server.kill()
        display.server.wait()

"""Generates valid, distinct PNG files of a given size."""

import os
import struct
import zlib


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


HEAD = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\0\0"))
)
TAIL = chunk(b"IEND", b"")
SMALLEST = len(HEAD) + len(TAIL) + 12


def image(size):
    """Returns a PNG of one pixel with random bytes in a private chunk; `size` is at least SMALLEST."""
    return HEAD + chunk(b"tcBn", os.urandom(size - SMALLEST)) + TAIL


def image_without_zeros(size):
    """Returns a GIF of 257 by 257 pixels without zero bytes, since redis-benchmark ends an argument at a zero byte."""
    return b"GIF89a" + b"\x01" * 7 + bytes(byte or 1 for byte in os.urandom(size - 13))


def write_images(directory, count, size):
    """Writes `count` images, named like redis-benchmark's random numbers: twelve digits."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (directory / f"{number:012}").write_bytes(image(size))

"""The images of a run: valid PNG files of a given size, each unlike the others."""

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
    """One pixel, and random bytes in a private chunk up to `size`, which is at least SMALLEST."""
    return HEAD + chunk(b"tcBn", os.urandom(size - SMALLEST)) + TAIL


def image_without_zeros(size):
    """What passes for a GIF of 257 pixels each way and has no zero byte: there redis-benchmark would end an argument.
    """
    return b"GIF89a" + b"\x01" * 7 + bytes(byte or 1 for byte in os.urandom(size - 13))


def write_images(directory, count, size):
    """`count` images under the names that redis-benchmark makes of random numbers: twelve digits."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (directory / f"{number:012}").write_bytes(image(size))

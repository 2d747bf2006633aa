"""Generates distinct PNG images."""

import struct
import zlib


def make_image(text, size=0):
    """Returns a PNG image of one pixel with a text chunk that contains `text`, padded to `size` bytes."""
    body = text.encode().ljust(size, b"0")
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + chunk(b"tEXt", b"Comment\0" + body)
        + chunk(b"IDAT", PIXEL)
        + chunk(b"IEND", b"")
    )


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PIXEL = zlib.compress(b"\0\0")

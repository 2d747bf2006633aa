#!/usr/bin/env python3
"""Draws the portraits in this directory: fictional people in flat colors instead of photographs.

    draw.py DIRECTORY

Needs only the standard library and takes some seconds per image. The output is reproducible.
"""

import pathlib
import struct
import sys
import zlib

SIDE = 160  # pixels per side
SAMPLES = 3  # per pixel and direction, for smooth edges

DARK, BROWN, BLOND, RED, GRAY = "#2b2320", "#5b3a29", "#d9a441", "#b5482a", "#9aa0a6"
PALE, LIGHT, TAN, DEEP = "#f6d7c3", "#eec0a0", "#c98d62", "#7d5137"

# name: wall, skin, hair, coat, haircut, extras
PEOPLE = {
    "bob": ("#8ecae6", LIGHT, BROWN, "#1d4e89", "short", {"beard"}),
    "carol": ("#ffb4a2", PALE, RED, "#6d597a", "long", set()),
    "dave": ("#b7e4c7", DEEP, DARK, "#2d6a4f", "short", {"glasses"}),
    "erin": ("#ffd166", TAN, DARK, "#9d0208", "bun", set()),
    "frank": ("#cdb4db", PALE, GRAY, "#3a3a5c", "bald", {"glasses", "beard"}),
    "grace": ("#a0e7e5", DEEP, DARK, "#e07a5f", "curls", set()),
    "heidi": ("#d8e2a8", PALE, BLOND, "#386641", "long", {"glasses"}),
    "ivan": ("#f4c095", LIGHT, BLOND, "#14213d", "short", set()),
}


def ellipse(x, y, wide, high):
    return lambda px, py: ((px - x) / wide) ** 2 + ((py - y) / high) ** 2 <= 1


def both(*shapes):
    return lambda px, py: all(shape(px, py) for shape in shapes)


def without(shape, hole):
    return lambda px, py: shape(px, py) and not hole(px, py)


def above(limit):
    return lambda px, py: py < limit


def below(limit):
    return lambda px, py: py > limit


def beside(shape):
    """Returns the shape combined with its reflection at x = 80."""
    return lambda px, py: shape(80 - abs(px - 80), py)


def darker(color, share=0.86):
    return "#" + "".join(f"{int(int(color[i : i + 2], 16) * share):02x}" for i in (1, 3, 5))


def layers(skin, hair, coat, cut, extras):
    """Yields shapes with their colors, from back to front."""
    head, face = ellipse(80, 70, 31, 37), ellipse(80, 76, 31, 36)
    if cut == "long":
        yield ellipse(80, 72, 44, 48), hair
        yield both(beside(ellipse(50, 106, 16, 34)), below(60)), hair
    if cut == "bun":
        yield ellipse(80, 22, 17, 15), hair
    if cut == "curls":
        for x, y, size in ((47, 62, 17), (52, 42, 18), (67, 30, 18), (84, 28, 18), (101, 36, 18), (112, 52, 18),
                           (114, 71, 15), (45, 80, 14)):
            yield ellipse(x, y, size, size), hair
    yield ellipse(80, 168, 62, 50), coat
    yield both(ellipse(80, 112, 15, 28), below(90)), darker(skin)
    yield without(ellipse(80, 118, 24, 20), above(118)), darker(skin)
    yield beside(ellipse(48.5, 78, 6, 9)), darker(skin, 0.93)
    yield face, skin
    if "beard" in extras:
        yield without(both(face, below(80)), ellipse(80, 78, 24, 18)), hair
    # The part of the head above the hairline.
    line = {"short": ellipse(84, 88, 33, 40), "long": ellipse(66, 92, 42, 44), "bun": ellipse(80, 96, 34, 48),
            "curls": ellipse(80, 92, 33, 44)}.get(cut)
    if line:
        yield without(both(ellipse(80, 68, 34, 37), above(84)), line), hair
    if cut == "bald":
        yield both(beside(ellipse(50, 74, 6, 15)), above(82)), hair
    yield beside(ellipse(68, 78, 3.4, 3.8)), "#2b2b2b"
    yield both(beside(without(ellipse(68, 70, 7, 4), ellipse(68, 72, 8, 4))), above(71)), darker(hair, 0.8)
    yield ellipse(80, 88, 3.5, 2.6), darker(skin, 0.86)
    yield without(ellipse(80, 95, 11, 8), ellipse(80, 91.5, 13, 7.5)), "#a4403f"
    if "glasses" in extras:
        yield beside(without(ellipse(67, 78, 11, 10), ellipse(67, 78, 9, 8))), "#333333"
        yield both(ellipse(80, 76, 4, 2), above(77)), "#333333"


def image(wall, *person):
    shapes = [(shape, bytes.fromhex(color[1:])) for shape, color in layers(*person)][::-1]
    wall = bytes.fromhex(wall[1:])
    rows = []
    for y in range(SIDE):
        row = bytearray([0])  # no filter
        for x in range(SIDE):
            colors = []
            for sample in range(SAMPLES**2):
                px, py = x + (sample % SAMPLES + 0.5) / SAMPLES, y + (sample // SAMPLES + 0.5) / SAMPLES
                colors.append(next((color for shape, color in shapes if shape(px, py)), wall))
            row += bytes(sum(channel) // len(colors) for channel in zip(*colors))
        rows.append(bytes(row))
    return b"".join(rows)


def png(pixels):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    body = zlib.compress(pixels, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


for name, person in PEOPLE.items():
    (pathlib.Path(sys.argv[1]) / f"{name}.png").write_bytes(png(image(*person)))

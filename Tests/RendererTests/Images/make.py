"""Creates the images in this directory with Pillow 13 and vips. The images are committed, so tests do not need it.

Each image shows the same scene: red above blue on the left, green above white on the right.
"""

import io
import pathlib
import struct
import subprocess
import zlib

from PIL import Image, ImageCms

HERE = pathlib.Path(__file__).parent
SIZE = (48, 32)
COLORS = [["red", "lime"], ["blue", "white"]]
#: EXIF orientations, and the transposition that matches each.
TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def scene(size=SIZE):
    image = Image.new("RGB", size)
    width, height = size[0] // 2, size[1] // 2
    for row, line in enumerate(COLORS):
        for column, color in enumerate(line):
            image.paste(color, (column * width, row * height, (column + 1) * width, (row + 1) * height))
    return image


def save(name, image, **options):
    image.save(HERE / name, **options)


def metadata(turn=1):
    exif = Image.Exif()
    exif[0x0112] = turn
    exif[0x013B] = "Somebody Else"
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 18.0)})
    return exif


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, color, rows):
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", head)
        + png_chunk(b"IDAT", zlib.compress(rows, 9))
        + png_chunk(b"IEND", b"")
    )


def icc_profile(space, tags):
    """An ICC display profile, version 2.4, with these tags."""
    table, data = struct.pack(">I", len(tags)), b""
    start = 128 + 4 + 12 * len(tags)
    for name, content in tags.items():
        table += name + struct.pack(">II", start + len(data), len(content))
        data += content + b"\0" * (-len(content) % 4)
    head = struct.pack(">I4sI4s4s4s", start + len(data), b"none", 0x02400000, b"mntr", space, b"XYZ ")
    head += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + b"\0" * 28
    head += struct.pack(">III", 0xF6D6, 0x10000, 0xD32D) + b"\0" * 48
    return head + table + data


def gray_profile():
    """A linear gray profile: 128 corresponds to 188 in sRGB."""
    text = b"gray\0"
    return icc_profile(
        b"GRAY",
        {
            b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + b"\0" * 78,
            b"cprt": b"text\0\0\0\0none\0",
            b"wtpt": b"XYZ \0\0\0\0" + struct.pack(">III", 0xF6D6, 0x10000, 0xD32D),
            b"kTRC": b"curv\0\0\0\0" + struct.pack(">I", 0),
        },
    )


def swapped_profile():
    """An sRGB profile with the red and green channels swapped."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    names = {b"rXYZ": b"gXYZ", b"gXYZ": b"rXYZ"}
    count = struct.unpack_from(">I", srgb, 128)[0]
    changed = bytearray(srgb)
    for place in range(132, 132 + 12 * count, 12):
        name = srgb[place : place + 4]
        changed[place : place + 4] = names.get(name, name)
    return bytes(changed)


def profiles():
    """Images with ICC profiles: `SPACE-as-PROFILE.KIND` has a profile that does not describe its colors."""
    image, gray = scene(), scene().convert("L")
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    save("rgb-as-gray.jpg", image, quality=95, subsampling=0, icc_profile=gray_profile())
    save("rgb-as-gray.png", image, icc_profile=gray_profile())
    save("rgb-as-gray.webp", image, lossless=True, icc_profile=gray_profile())
    save("rgb-as-gray.avif", image, quality=95, subsampling="4:4:4", icc_profile=gray_profile())
    save("rgb-as-cmyk.jpg", image, quality=95, subsampling=0, icc_profile=icc_profile(b"CMYK", {}))
    save("rgb-as-broken.jpg", image, quality=95, subsampling=0, icc_profile=icc_profile(b"RGB ", {}))
    save("gray-as-rgb.jpg", gray, quality=95, icc_profile=srgb)
    save("gray-as-cmyk.jpg", gray, quality=95, icc_profile=icc_profile(b"CMYK", {}))
    save("gray-as-broken.jpg", gray, quality=95, icc_profile=icc_profile(b"GRAY", {}))
    save("gray-as-nothing.jpg", gray, quality=95, icc_profile=b"no profile")
    cmyk = image.convert("CMYK")
    save("cmyk-as-rgb.jpg", cmyk, quality=95, subsampling=0, icc_profile=srgb)
    save("cmyk-as-broken.jpg", cmyk, quality=95, subsampling=0, icc_profile=icc_profile(b"CMYK", {}))
    red, green, blue = image.split()
    swapped = Image.merge("RGB", (green, red, blue))
    save("swapped.jpg", swapped, quality=95, subsampling=0, icc_profile=swapped_profile())
    middle = Image.new("L", SIZE, 128)
    save("linear-gray.jpg", middle, quality=95, icc_profile=gray_profile())
    save("linear-gray.png", Image.merge("LA", (middle, Image.new("L", SIZE, 255))), icc_profile=gray_profile())


def gif_frame(image, screen, place):
    """A GIF of one opaque frame that covers a part of its screen."""
    file = io.BytesIO()
    image.quantize(4).save(file, "GIF")
    bytes_ = bytearray(file.getvalue())
    bytes_[6:10] = struct.pack("<HH", *screen)
    descriptor = bytes_.index(b"\x2c\0\0\0\0" + struct.pack("<HH", *image.size))
    bytes_[descriptor + 1 : descriptor + 5] = struct.pack("<HH", *place)
    return bytes(bytes_)


def frames():
    """A GIF whose first frame covers a part of its screen, and an animated AVIF."""
    (HERE / "partial.gif").write_bytes(gif_frame(scene((24, 16)), SIZE, (12, 8)))
    others = [scene().transpose(Image.Transpose.ROTATE_180)]
    save("animated.avif", scene(), save_all=True, append_images=others, quality=95, subsampling="4:4:4")


def main():
    image = scene()
    profiles()
    frames()
    save("baseline.jpg", image, quality=95, subsampling=0)
    save("progressive.jpg", image, quality=95, subsampling=0, progressive=True)
    save("cmyk.jpg", image.convert("CMYK"), quality=95, subsampling=0)
    save("gray.jpg", image.convert("L"), quality=95)
    for turn, way in TURNS.items():
        turned = image if way is None else image.transpose(way)
        save(f"exif-{turn}.jpg", turned, quality=95, subsampling=0, exif=metadata(turn))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    save("icc.png", image, icc_profile=profile)
    save("palette.png", image.quantize(4))
    alpha = image.convert("RGBA")
    alpha.putpixel((0, 0), (0, 0, 0, 0))
    alpha.paste((0, 0, 0, 0), (24, 16, 48, 32))
    save("alpha.png", alpha)
    save("alpha.webp", alpha, lossless=True)
    rows = b"".join(
        b"\x00" + b"".join(struct.pack(">HHH", *(part * 257 for part in image.getpixel((x, y)))) for x in range(48))
        for y in range(32)
    )
    (HERE / "16-bit.png").write_bytes(png(48, 32, 16, 2, rows))
    save("lossy.webp", image, quality=95)
    save("lossless.webp", image, lossless=True, exif=metadata())
    save("still.gif", image.quantize(4))
    frames = [image.quantize(4), scene().transpose(Image.Transpose.ROTATE_180).quantize(4)]
    save("animated.gif", frames[0], save_all=True, append_images=frames[1:], duration=100)
    save("animated.webp", image, save_all=True, append_images=[frames[1].convert("RGB")], lossless=True)
    save("plain.avif", image, quality=95, subsampling="4:4:4")
    # HEVC data, as in HEIC, with the brand of AVIF.
    coded = HERE / "hevc.heic"
    subprocess.run(["vips", "heifsave", HERE / "palette.png", coded, "--compression", "hevc"], check=True)
    (HERE / "hevc.avif").write_bytes(coded.read_bytes().replace(b"heic", b"avif", 2))
    coded.unlink()
    # Image bombs: small files with huge dimensions.
    (HERE / "bomb.png").write_bytes(png(30_000, 30_000, 8, 2, b""))
    (HERE / "bomb-bits.png").write_bytes(png(20_000, 20_000, 1, 0, bytes(20_000 * 2_501)))
    still = bytearray((HERE / "still.gif").read_bytes())
    still[6:10] = struct.pack("<HH", 65_000, 65_000)
    (HERE / "bomb.gif").write_bytes(still)
    jpeg = bytearray((HERE / "baseline.jpg").read_bytes())
    place = jpeg.index(b"\xff\xc0") + 5
    jpeg[place : place + 4] = struct.pack(">HH", 65_000, 65_000)
    (HERE / "lying.jpg").write_bytes(jpeg)


if __name__ == "__main__":
    main()

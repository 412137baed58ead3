#!/usr/bin/env python3
"""Small images of every kind that the decoders know, and what PIL makes of them: tests/golden/images/NAME.{jpg,png} with NAME.rgb, the
rows of PIL's convert("RGB") (of 16-bit gray, the high bytes). Also the resized, cropped and augmented images that tests/image compares
with. Needs pillow, numpy and torchvision; tests do not.

    python3 tests/golden/make_images.py tests/golden/images
"""
import io
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
rng = np.random.default_rng(19)


def picture(width, height):
    """Gradients, edges and texture, so that chroma, ringing and filters all matter."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red = 127 + 120 * np.sin(x / 5.0 + y / 11.0)
    green = 255 * x / max(width - 1, 1)
    blue = np.where((x - width / 2) ** 2 + (y - height / 2) ** 2 < (height / 3) ** 2, 240, 30)
    noise = rng.normal(0, 12, (height, width, 3))
    return np.clip(np.stack([red, green, blue], -1) + noise, 0, 255).astype(np.uint8)


def png(path, width, height, depth, color, rows, interlace=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)))
        f.write(chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def keep(name, pixels=None):
    if pixels is None:
        pixels = Image.open(os.path.join(out, name)).convert("RGB").tobytes()
    with open(os.path.join(out, name.rsplit(".", 1)[0] + ".rgb"), "wb") as f:
        f.write(pixels)


base = picture(61, 47)
image = Image.fromarray(base)
for name, options in {
    "444": dict(subsampling=0),
    "422": dict(subsampling=1),
    "420": dict(subsampling=2),
    "progressive": dict(subsampling=2, progressive=True),
    "restart": dict(subsampling=2, restart_marker_blocks=3),
}.items():
    image.save(f"{out}/{name}.jpg", quality=85, **options)
    keep(f"{name}.jpg")
image.convert("L").save(f"{out}/gray.jpg", quality=85)
keep("gray.jpg")
image.convert("CMYK").save(f"{out}/cmyk.jpg", quality=90)
keep("cmyk.jpg")
exif = Image.Exif()
exif[0x0112] = 6
image.save(f"{out}/rotated.jpg", quality=85, exif=exif)
keep("rotated.jpg")

small = Image.fromarray(picture(23, 17))
small.save(f"{out}/rgb.png")
keep("rgb.png")
alpha = small.convert("RGBA")
alpha.putalpha(Image.fromarray(picture(23, 17)[:, :, 0]))
alpha.save(f"{out}/rgba.png")
keep("rgba.png")
palette = small.quantize(16)
palette.save(f"{out}/palette.png", transparency=3)
keep("palette.png")
small.convert("L").save(f"{out}/gray_png.png")
keep("gray_png.png")
small.convert("LA").save(f"{out}/gray_alpha.png")
keep("gray_alpha.png")
small.convert("1").save(f"{out}/one_bit.png")
keep("one_bit.png")
wide = rng.integers(0, 65536, (17, 23, 3), dtype=np.uint16)
png(f"{out}/rgb16.png", 23, 17, 16, 2, b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide))
keep("rgb16.png")
deep = rng.integers(0, 65536, (17, 23), dtype=np.uint16)
png(f"{out}/gray16.png", 23, 17, 16, 0, b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep))
keep("gray16.png", np.repeat((deep >> 8).astype(np.uint8), 3).tobytes())
pixels = np.asarray(small)
passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
rows = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes for row in pixels[y::dy, x::dx] if row.size)
png(f"{out}/interlaced.png", 23, 17, 8, 2, rows, 1)
keep("interlaced.png")

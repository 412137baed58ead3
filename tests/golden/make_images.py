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


# What is done to the pixels: resizing, colors, and a whole validation transform.
from PIL import ImageEnhance, ImageOps  # noqa: E402
from torchvision import transforms as T  # noqa: E402
from torchvision.transforms import functional as F  # noqa: E402


def save(name, images):
    with open(f"{out}/{name}", "wb") as f:
        for one in images:
            f.write(one.tobytes() if isinstance(one, Image.Image) else np.ascontiguousarray(one).tobytes())


source = Image.open(f"{out}/444.jpg").convert("RGB")
cubic = Image.Resampling.BICUBIC
save("resized.rgb", [
    source.resize((20, 16), cubic),
    source.resize((90, 70), cubic),
    source.resize((1, 1), cubic),
    source.resize((61, 9), cubic),
    source.resize((16, 16), cubic, box=(5, 3, 50, 40)),
    source.resize((24, 25), cubic, box=(0.5, 1.25, 60.3, 46.9)),
    source.crop((7, 9, 40, 31)).resize((16, 16), cubic),
    source.crop((60, 9, 61, 12)).resize((7, 5), cubic),
])
small = Image.open(f"{out}/rgb.png").convert("RGB")
save("colored.rgb", [
    small.convert("L").convert("RGB"),
    ImageOps.solarize(small, 128),
    *[ImageEnhance.Brightness(small).enhance(f) for f in (0.7, 1.25)],
    *[ImageEnhance.Contrast(small).enhance(f) for f in (0.8, 1.3)],
    *[ImageEnhance.Color(small).enhance(f) for f in (0.75, 1.2)],
])
save("blurred.rgb", [F.gaussian_blur(small, [5, 5], [s, s]) for s in (0.1, 0.9, 2.0)])
shown = []
for shorter, size in ((16, 16), (24, 16), (60, 52)):
    shown.append(T.Compose([T.Resize(shorter, T.InterpolationMode.BICUBIC), T.CenterCrop(size)])(source))
save("validated.rgb", shown)
normalize = T.Compose([T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
save("normalized.f32", [normalize(shown[0]).numpy()])

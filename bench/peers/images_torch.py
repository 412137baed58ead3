#!/usr/bin/env python3
"""JPEG files to normalized tensors: Sluice next to torchvision over PIL, milliseconds of processor time per image on one thread.

Run by bench/images.sh, which builds the program for our side. Without --files it makes its own images: noise with the spectrum of
photographs (amplitude 1/f), so that files have the size and the transforms the work of real ones.

    train        RandomResizedCrop(224, bicubic), RandomHorizontalFlip, ToTensor, Normalize
    three        with ThreeAugment (grayscale, solarize or blur) and ColorJitter(.3, .3, .3)
    validation   Resize(256, bicubic), CenterCrop(224), ToTensor, Normalize
"""
import argparse
import glob
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import transforms as T

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--files", help="a folder of JPEG files")
parser.add_argument("--count", type=int, default=24)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--size", type=int, default=224)
args = parser.parse_args()
torch.set_num_threads(1)


def make(folder, width, height, count):
    rng = np.random.default_rng(1)
    y, x = np.meshgrid(np.fft.fftfreq(height), np.fft.fftfreq(width), indexing="ij")
    falloff = 1 / np.maximum(np.hypot(x, y), 1 / max(width, height))
    for i in range(count):
        def plane():
            noise = np.fft.ifft2(np.fft.fft2(rng.normal(size=(height, width))) * falloff).real
            return noise / noise.std()

        light = plane()
        pixels = np.stack([light + 0.4 * plane() for _ in range(3)], -1)
        Image.fromarray(np.clip(128 + 50 * pixels, 0, 255).astype(np.uint8)).save(f"{folder}/{width}_{i}.jpg", quality=90)


interpolation = T.InterpolationMode.BICUBIC
finish = [T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
crop = [T.RandomResizedCrop(args.size, interpolation=interpolation), T.RandomHorizontalFlip()]
three = [T.RandomChoice([T.Grayscale(3), T.RandomSolarize(128, 1.0), T.GaussianBlur(5, (0.1, 2.0))]), T.ColorJitter(0.3, 0.3, 0.3)]
recipes = {
    "train": T.Compose(crop + finish),
    "three": T.Compose(crop + three + finish),
    "validation": T.Compose([T.Resize(round(args.size / 0.875), interpolation), T.CenterCrop(args.size)] + finish),
}
program = subprocess.Popen([args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ours(recipe, scaled, number, files):
    program.stdin.write(f"{recipe} {args.size} {scaled} {number} {' '.join(files)}\n")
    program.stdin.flush()
    return float(program.stdout.readline())


def theirs(recipe, files):
    transform = recipes[recipe]
    begin = time.process_time()
    for path in files:
        with open(path, "rb") as f:
            transform(Image.open(f).convert("RGB"))
    return time.process_time() - begin


print(f"torchvision {torchvision.__version__}, torch {torch.__version__}, Pillow {PIL.__version__}; ms of processor time per image, median of {args.rounds}")
print("| images | KB | recipe | sluice | sluice, scaled decoding | torchvision | times the faster | scaled |")
print("|---|---|---|---|---|---|---|---|")
with tempfile.TemporaryDirectory() as folder:
    groups = []
    if args.files:
        groups.append((args.files, sorted(glob.glob(args.files + "/**/*.[jJ][pP]*[gG]", recursive=True))[: args.count]))
    else:
        for width, height, count in ((500, 375, args.count), (1600, 1200, max(args.count // 4, 1))):
            make(folder, width, height, count)
            groups.append((f"{width} x {height}", sorted(glob.glob(f"{folder}/{width}_*.jpg"))))
    for name, files in groups:
        kilobytes = sum(map(os.path.getsize, files)) / len(files) / 1000
        for recipe in recipes:
            times = [[], [], []]
            for number in range(args.rounds + 1):
                row = ours(recipe, 0, number, files), ours(recipe, 1, number, files), theirs(recipe, files)
                for kept, value in zip(times, row):
                    if number:  # the first round warms up
                        kept.append(value / len(files) * 1000)
            full, scaled, torch_time = map(statistics.median, times)
            print(f"| {name} | {kilobytes:.0f} | {recipe} | {full:.2f} | {scaled:.2f} | {torch_time:.2f} | {torch_time / full:.2f} | {torch_time / scaled:.2f} |", flush=True)

"""Generated images, good and bad, for the tests."""

import os
import socket

import numpy as np
from PIL import Image


def photo(seed, width=40, height=30, mode="RGB"):
    """A smooth image, so that JPEG keeps it nearly as it is."""
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    count = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    planes = [np.sin(3 * x + seed + i) * np.cos(2 * y + i) for i in range(count)]
    pixels = np.rint(127.5 + 127.5 * np.stack(planes, axis=-1)).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode)


def write(path, image, cut=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])


def make_tree(root, per_class=5, classes=("ant", "bee", "cat"), splits=("train", "val")):
    for split in splits:
        for c, name in enumerate(classes):
            for i in range(per_class):
                kind = "jpg" if i % 2 else "png"
                write(root / split / name / f"{i:03d}.{kind}", photo(10 * c + i))
    return root


def bad_files(folder):
    """{file: what its message must say}"""
    write(folder / "cut.jpg", photo(5), cut=100)
    write(folder / "cut.png", photo(5), cut=100)
    write(folder / "header.png", photo(5), cut=1)
    (folder / "header.png").write_bytes((folder / "header.png").read_bytes()[:20])
    (folder / "empty.jpg").touch()
    (folder / "notes.txt").write_text("not an image\n")
    (folder / "fake.jpg").write_text("not an image either\n")
    Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20) * 100).save(folder / "deep.png")
    photo(5).save(folder / "picture.gif")
    return {
        "cut.jpg": "truncated",
        "cut.png": "truncated",
        "header.png": "",
        "empty.jpg": "neither JPEG nor PNG",
        "notes.txt": "neither JPEG nor PNG",
        "fake.jpg": "neither JPEG nor PNG",
        "deep.png": "more than 8 bits",
        "picture.gif": "neither JPEG nor PNG",
    }


def special_files(folder):
    """What is not a regular file but may lie in a folder: a pipe, a socket, links to a device."""
    os.mkfifo(folder / "pipe.jpg")
    (folder / "zeros.jpg").symlink_to("/dev/zero")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(folder / "socket.jpg"))
    return ["pipe.jpg", "zeros.jpg", "loop.jpg", "socket.jpg"]


def bomb(path, side=13_000):
    """A PNG of side x side grey pixels in a few kilobytes."""
    Image.new("1", (side, side)).save(path)

"""Decodes JPEG and PNG files into square uint8 samples with Pillow.

The steps, without randomness:

    decode    a JPEG at 1/2, 1/4 or 1/8 of its size if that is still large enough (`draft`: the
              decoder then skips most of the inverse transform, the main cost of large photographs)
    mode      channels=3 gives RGB, channels=1 grey. Grey, palette and CMYK files are converted,
              transparency is dropped, 16-bit and floating-point grey is refused
    resize    the largest centred square to image_size x image_size, bilinear: in one pass the same
              as resizing the shorter side to image_size and cropping the centre

Rotation flags of cameras (EXIF) are not applied, as in torchvision's ImageFolder. A file of more
than MOST_PIXELS is refused, because a few kilobytes can decode to gigabytes on every rank.
"""

import io
import struct
import warnings
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image, UnidentifiedImageError

from refgf.machine.regular_files import open_regular

FORMATS = ("JPEG", "PNG")
MODES = {1: "L", 3: "RGB"}
# JPEG's end marker, which cannot occur inside its entropy-coded data, and PNG's last chunk
END_MARKS = (b"\xff\xd9", b"IEND\xaeB`\x82")
TAIL_BYTES = 64
MOST_PIXELS = 1 << 26  # 256 MiB decoded; ImageNet's largest file has 61 million
# exceptions of Pillow and its libraries for damaged files; any other one is a bug
DAMAGE: tuple[type[Exception], ...] = (OSError, SyntaxError, ValueError, EOFError)
DAMAGE += (struct.error, zlib.error, Image.DecompressionBombError)
# Pillow warns of more pixels than are accepted here
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode(path: str, image_size: int, channels: int, content: bytes | None = None) -> np.ndarray:
    """The file as uint8 (image_size, image_size, channels); ValueError with its name if that fails.

    content: the file's bytes if they have been read already (datacache); else the file is opened.
    """
    try:
        with (
            open_regular(path) if content is None else io.BytesIO(content) as file,
            Image.open(file, formats=FORMATS) as image,
        ):
            _require_decodable(image)
            image.draft(MODES[channels], (image_size, image_size))
            square = _crop_square(_convert(image, MODES[channels]), image_size)
    except DAMAGE as error:
        raise ValueError(f"{path}: {_reason(error)}") from error
    return np.asarray(square).reshape(image_size, image_size, channels)


def decoder(names: list[str], image_size: int, channels: int) -> Callable:
    """decode(index, content) -> sample, for `papers/datacache`; names are for error messages."""
    return lambda index, content: decode(names[index], image_size, channels, content)


def check_ends(path: str) -> None:
    """The quick check: ValueError unless the file has a header that `decode` takes and an end mark.

    It reads a few hundred bytes, so damage in the middle passes. A file without an end mark in its
    last bytes is decoded, because some cameras append data.
    """
    try:
        with open_regular(path) as file, Image.open(file, formats=FORMATS) as image:
            _require_decodable(image)
            if not any(mark in _tail(path) for mark in END_MARKS):
                image.load()
    except DAMAGE as error:
        raise ValueError(f"{path}: {_reason(error)}") from error


def _require_decodable(image) -> None:
    width, height = image.size
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"more than 8 bits a channel (mode {image.mode})")
    if width * height > MOST_PIXELS:
        raise ValueError(f"{width} x {height} pixels, more than {MOST_PIXELS}")


def _convert(image, mode: str):
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns about the direct conversion
    return image if image.mode == mode else image.convert(mode)


def _crop_square(image, image_size: int):
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((image_size, image_size), Image.Resampling.BILINEAR, box=box)


def _tail(path: str) -> bytes:
    with open_regular(path) as file:
        length = file.seek(0, 2)
        file.seek(max(0, length - TAIL_BYTES))
        return file.read()


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "is neither JPEG nor PNG"
    return f"cannot be decoded: {getattr(error, 'strerror', None) or error}"


class ImageFiles:
    """samples = files(indices): uint8 (N, image_size, image_size, channels), decoded on first use.

    Decoded samples stay in memory if all of them fit into memory_limit_bytes; otherwise every call
    decodes. The memory belongs to the process: 8 ranks on a machine hold 8 copies.
    """

    def __init__(
        self, paths: list[str], image_size: int, channels: int, memory_limit_bytes: int
    ) -> None:
        self.paths = paths
        self.shape = (image_size, image_size, channels)
        self.fits = len(paths) * image_size * image_size * channels <= memory_limit_bytes
        self._decoded = np.zeros(len(paths), bool)
        rows = len(paths) if self.fits else 0
        self._samples = np.empty((rows, *self.shape), np.uint8)  # untouched pages take no memory

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        samples = np.empty((len(indices), *self.shape), np.uint8)
        for row, index in enumerate(indices):
            samples[row] = self.sample(index)
        return samples

    def sample(self, index: int) -> np.ndarray:
        """One sample (image_size, image_size, channels)."""
        if self._decoded[index]:
            return self._samples[index]
        sample = decode(self.paths[index], self.shape[0], self.shape[2])
        if self.fits:
            self._samples[index] = sample
            self._decoded[index] = True
        return sample

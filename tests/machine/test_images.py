"""One image file: its square of uint8, and the files that are refused."""

import warnings

import numpy as np
import pytest
from PIL import Image

from refgf.machine import images
from tests.support.pictures import bad_files, bomb, photo, special_files, write


# each side scales evenly
@pytest.mark.parametrize("width, height", [(20, 20), (60, 40), (40, 60), (10, 14), (5, 90)])
@pytest.mark.parametrize("channels", [1, 3])
def test_decode_is_resize_and_centre_crop(tmp_path, width, height, channels):
    write(tmp_path / "a.png", photo(1, width, height))
    got = images.decode(str(tmp_path / "a.png"), 20, channels)
    shorter = min(width, height)
    with Image.open(tmp_path / "a.png") as image:
        size = (width * 20 // shorter, height * 20 // shorter)
        whole = image.convert(images.MODES[channels]).resize(size, Image.Resampling.BILINEAR)
    left, top = (whole.width - 20) // 2, (whole.height - 20) // 2
    plain = np.asarray(whole.crop((left, top, left + 20, top + 20))).reshape(20, 20, channels)
    assert np.array_equal(got, plain) and got.dtype == np.uint8


def test_a_large_jpeg_decoded_small_is_nearly_the_same(tmp_path):
    write(tmp_path / "a.jpg", photo(2, 800, 640))
    small = images.decode(str(tmp_path / "a.jpg"), 40, 3).astype(int)
    with Image.open(tmp_path / "a.jpg") as image:
        plain = image.resize((40, 40), Image.Resampling.BILINEAR, box=(80, 0, 720, 640))
    plain = np.asarray(plain).astype(int)
    # on a smooth image both are averages around the same point; each rounding may add one level
    assert np.abs(small - plain).max() <= 2
    assert np.any(small != plain), "draft mode was not used"


@pytest.mark.parametrize(
    "mode, suffix", [("L", "jpg"), ("L", "png"), ("CMYK", "jpg"), ("RGB", "png")]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_cmyk_are_converted(tmp_path, mode, suffix, channels):
    write(tmp_path / f"a.{suffix}", photo(3, 20, 20, mode))
    with Image.open(tmp_path / f"a.{suffix}") as image:
        assert image.mode == mode
        plain = np.asarray(image.convert(images.MODES[channels])).reshape(20, 20, channels)
    assert np.array_equal(images.decode(str(tmp_path / f"a.{suffix}"), 20, channels), plain)


def test_palette_with_transparency_is_converted_without_a_warning(tmp_path):
    image = photo(4, 20, 20).quantize(16)
    image.save(tmp_path / "a.png", transparency=bytes(range(16)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = images.decode(str(tmp_path / "a.png"), 20, 3)
    assert np.array_equal(got, np.asarray(image.convert("RGB")))


checks = pytest.mark.parametrize(
    "check", [lambda path: images.decode(path, 20, 3), images.check_ends], ids=["decode", "ends"]
)


@checks
def test_bad_files_are_named_with_the_reason(tmp_path, check):
    for name, reason in bad_files(tmp_path).items():
        with pytest.raises(ValueError, match=f"{name}: .*{reason}"):
            check(str(tmp_path / name))


@checks
@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, check):
    for name in special_files(tmp_path):
        with pytest.raises(ValueError, match=f"{name}: cannot be decoded"):
            check(str(tmp_path / name))
    with pytest.raises(ValueError, match="cannot be decoded: .*null"):
        check("a\0b")


@checks
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_file_of_too_many_pixels_is_refused_before_it_takes_memory(tmp_path, check):
    bomb(tmp_path / "a.png")
    with pytest.raises(ValueError, match="a.png: .*13000 x 13000 pixels, more than 67108864"):
        check(str(tmp_path / "a.png"))


def test_the_quick_check_takes_what_decode_takes(tmp_path):
    for i, mode in enumerate(("RGB", "L", "CMYK")):
        write(tmp_path / "a.jpg", photo(i, mode=mode))
        images.check_ends(str(tmp_path / "a.jpg"))
        content = (tmp_path / "a.jpg").read_bytes()
        (tmp_path / "a.jpg").write_bytes(content + b"camera's own data" * 50)
        images.check_ends(str(tmp_path / "a.jpg"))
    write(tmp_path / "a.png", photo(7))
    images.check_ends(str(tmp_path / "a.png"))

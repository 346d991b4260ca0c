"""The site's server gives files of its folder only."""

import threading
import urllib.error
import urllib.request

import pytest

from refgf.site.serve import server

OUTSIDE = [
    "/link.txt",
    "/linked/",
    "/linked/secret.txt",
    "/sub/",
    "/%00",
    "/a%00b",
    "/../secret.txt",
]


@pytest.fixture
def address(tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    (site / "sub").mkdir(parents=True)
    elsewhere.mkdir()
    for file in (elsewhere / "secret.txt", tmp_path / "secret.txt"):
        file.write_text("secret")
    (site / "page.html").write_text("page")
    (site / "inside.html").symlink_to("page.html")
    (site / "link.txt").symlink_to(elsewhere / "secret.txt")
    (site / "linked").symlink_to(elsewhere)
    (site / "sub" / "index.html").symlink_to(elsewhere / "secret.txt")
    running = server(site, 0)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_shown(address, path, capfd):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address + path, timeout=10)
    assert refused.value.code == 404 and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("path", ["/page.html", "/inside.html"])
def test_files_and_links_inside_are_shown(address, path):
    assert urllib.request.urlopen(address + path, timeout=10).read() == b"page"

"""`make site` in a fresh clone, without a network.

Offline means: while the site is built, nothing is requested from any host. Packages are installed
before: the clone uses the environment of this test, with markdown-it-py, Pygments and Pyodide.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.site_links import broken_links, pages_of

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")
pytest.importorskip("pygments", reason="pip install -e '.[site]'")

from refgf.site import pyodide, search
from refgf.site.build import ALONE
from refgf.site.repository import PAGES, lesson_numbers

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 5  # what the site promises; it needs seconds
NOWHERE = "http://127.0.0.1:9"  # a proxy that nobody runs
pytestmark = pytest.mark.long


def without_network() -> tuple[list[str], dict[str, str]]:
    """(prefix of a command, environment): a namespace without a network, or proxies to nowhere."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    proxies = {key: NOWHERE for name in names for key in (name, name.upper())}
    for prefix in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        try:
            subprocess.run([*prefix, "true"], check=True, capture_output=True)
            return prefix, proxies
        except (OSError, subprocess.CalledProcessError):
            continue
    return [], proxies


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a checkout is cloned")
def test_a_fresh_clone_builds_the_site_offline(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(sys.prefix)
    prefix, proxies = without_network()
    command = [*prefix, "make", "--old-file=.venv/.ready-pages", "site"]  # which is no installation
    done = subprocess.run(
        command,
        cwd=clone,
        env=os.environ | proxies,
        timeout=60 * MINUTES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    missing = done.stderr.partition("got no ")[2].partition(" (")[0]
    assert ("pyodide" in missing) == (not pyodide.available(ROOT))
    assert ("minisearch" in missing) == (not search.available(ROOT))
    site = clone / "site"
    pages = pages_of(site)
    count = int(re.search(r"^(\d+) pages in ", done.stdout, re.M)[1])
    lessons = {f"lessons/{number}/index.html" for number in lesson_numbers(clone)}
    wanted = {*PAGES.values(), *ALONE, *lessons}
    assert wanted <= {page.relative_to(site).as_posix() for page in pages}
    assert len(pages) == count and broken_links(site, pages) == []

"""Shows the site on this machine only."""

import functools
import os
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, and nothing that its links name outside; no line for each request."""

    def send_head(self) -> BinaryIO | None:
        """The file that is asked for; 404 for what lies elsewhere or has an impossible name."""
        path, root = self.translate_path(self.path), os.path.realpath(self.directory)
        shown = [os.path.join(path, name) for name in ("", *self.index_pages)]
        inside = "\0" not in path and all(
            os.path.commonpath([root, os.path.realpath(one)]) == root for one in shown
        )
        if not inside:
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None
        return super().send_head()

    index_pages = ("index.html", "index.htm")

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of the files of `folder` on 127.0.0.1; port 0: any free one."""
    handler = functools.partial(Quiet, directory=str(folder))
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def serve(folder: Path, port: int) -> None:
    """Serve until Ctrl-C."""
    try:
        with server(folder, port) as running:
            print(f"http://127.0.0.1:{running.server_port}/    Ctrl-C ends it", flush=True)
            running.serve_forever()
    except KeyboardInterrupt:
        print()

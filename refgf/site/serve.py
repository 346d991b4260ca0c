"""Shows the site on this machine only."""

import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

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

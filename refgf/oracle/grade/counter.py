"""How many files are marked, on a terminal: [95 s, 12 of 60 files, about 380 s left]."""

import sys
import threading
import time

ERASE = "\r\x1b[K"


class Counter:
    """Counts the seconds of its block in one line, below what `says` prints. In a pipe: nothing."""

    def __init__(self, files: int) -> None:
        self.files, self.done, self.start_s = files, 0, time.monotonic()
        self.ended, self.screen = threading.Event(), threading.Lock()
        self.thread = threading.Thread(target=self._count, daemon=True)
        self.erase = ERASE if sys.stdout.isatty() else ""

    def __enter__(self) -> "Counter":
        if self.erase:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self.erase:
            self.thread.join()
            print(self.erase, end="", flush=True)

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.start_s

    def says(self, text: str) -> None:
        """Print what one more file has got."""
        with self.screen:
            self.done += 1
            print(f"{self.erase}{text}", flush=True)

    def line(self) -> str:
        passed_s, left = self.passed_s, self.files - self.done
        about = f", about {passed_s / self.done * left:.0f} s left" if self.done else ""
        files = f", {self.done} of {self.files} files{about}" * (self.files > 1)
        return f"[{passed_s:.0f} s{files}]"

    def _count(self) -> None:
        while not self.ended.wait(1.0):
            with self.screen:
                print(f"{self.erase}{self.line()}", end="", flush=True)

"""Messages between a judge and the process of foreign code: a length, the question's number, bytes.

The foreign code shares its process with the other end, so it may send anything. An answer that does
not begin with the number of the question, or is too long, was not made by `answer`.
"""

import os
import socket
import struct

HEAD = struct.Struct("!Q16s")  # bytes that follow; the question's number
START = b"start" + bytes(11)  # the number of the first message


class Connection:
    """The end in the process of foreign code."""

    def __init__(self, descriptor: int):
        os.set_inheritable(descriptor, False)  # programs that it starts do not get it
        self.socket = socket.socket(fileno=descriptor)
        self.number = START

    def question(self) -> bytes:
        """The next message. EOFError after the last one."""
        length, self.number = HEAD.unpack(self._read(HEAD.size))
        return self._read(length)

    def answer(self, message: bytes) -> None:
        self.socket.sendall(packed(message, self.number))

    def exchange(self, message: bytes) -> bytes:
        """The next message, after this one: a question of the foreign code's own."""
        self.answer(message)
        return self.question()

    def _read(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            more = self.socket.recv(min(length - len(found), 1 << 20))
            if not more:
                raise EOFError
            found += more
        return bytes(found)


def packed(message: bytes, number: bytes) -> bytes:
    return HEAD.pack(len(message), number) + message

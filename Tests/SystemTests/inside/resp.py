"""A client of the daemon: RESP2 over the Unix socket, with the uid of any user."""

import os
import socket

PATH = "/run/thumbcached/thumbcached.sock"
# Timeout for a reply, in seconds.
LIMIT = 90


class ErrorReply(Exception):
    """An error reply: its code, and the complete text."""

    def __init__(self, text):
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


class Closed(Exception):
    """The daemon closed the connection before it replied. After a reset the outcome of the request is unknown."""

    def __init__(self, text, is_reset=False):
        super().__init__(text)
        self.is_reset = is_reset


class Client:
    """One connection. Root connects as `uid` by changing the effective uid for connect(2)."""

    def __init__(self, uid=None, path=PATH):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT)
        self.buffer = b""
        try:
            if uid is not None:
                os.setegid(uid)
                os.seteuid(uid)
            self.socket.connect(path)
        except BaseException:
            self.socket.close()
            raise
        finally:
            if uid is not None:
                os.seteuid(0)
                os.setegid(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def command(self, *words):
        """Sends a command and returns its reply. Raises ErrorReply and Closed."""
        self.send(*words)
        return self.receive()

    def send(self, *words):
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        frame = b"".join([b"*%d\r\n" % len(parts), *(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)])
        try:
            self.socket.sendall(frame)
        except (BrokenPipeError, ConnectionResetError) as error:
            # A reply sent before the close can still be read.
            if not self.buffer:
                raise Closed("while sending", is_reset=True) from error

    def receive(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise ErrorReply(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.exactly(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.receive() for _ in range(int(rest))]
        raise ValueError(f"invalid RESP2 reply: {line!r}")

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def exactly(self, count):
        while len(self.buffer) < count:
            self.more()
        result, self.buffer = self.buffer[:count], self.buffer[count:]
        return result

    def more(self):
        try:
            received = self.socket.recv(1 << 16)
        except ConnectionResetError as error:
            raise Closed("reset", is_reset=True) from error
        if not received:
            # Reports a partial reply, so that it is not taken for a complete one.
            raise Closed("in the middle of a reply" if self.buffer else "before a reply")
        self.buffer += received


def request(*words, uid=None):
    """Sends one command over a new connection and returns its reply."""
    with Client(uid) as client:
        return client.command(*words)


def error_code(*words, uid=None):
    """Returns the error code of a command's reply, or None if it succeeds."""
    try:
        request(*words, uid=uid)
    except ErrorReply as error:
        return error.code
    return None

"""Helpers of tools that run a daemon: the process, a client, generated images, and an origin.

Uses only Python's standard library and no code of the project.
"""

import hashlib
import http.server
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import zlib

TIMEOUT = 30  # seconds before an operation counts as failed
TICKS = os.sysconf("SC_CLK_TCK")


class CheckFailed(Exception):
    """The daemon violated a requirement."""


class ErrorReply(str):
    """An error reply."""

    @property
    def code(self):
        return self.split(" ", 1)[0]


class Client:
    """A minimal RESP2 client."""

    def __init__(self, path, timeout=TIMEOUT):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.replies = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.replies.close()
        self.socket.close()

    def call(self, *words):
        self.send(*words)
        return self.reply()

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def reply(self):
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("the daemon closed the connection before a complete reply")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ErrorReply(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind in (b"$", b"*") and int(rest) < 0:
            return None
        if kind == b"$":
            return self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise CheckFailed(f"invalid RESP2 reply: {line!r}")

    def info(self):
        """The fields of INFO, as text."""
        lines = self.call("INFO").decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Daemon:
    """A thumbcached process with its directories below `home`; can be restarted with the same store."""

    def __init__(self, program, home, settings="", keep_log=True):
        self.program, self.home = pathlib.Path(program).resolve(), pathlib.Path(home)
        self.path = self.home / "socket"
        self.configuration = self.home / "thumbcached.toml"
        self.log_file = self.home / "log"
        self.keep_log = keep_log
        self.places = {kind: self.home / kind for kind in ("cache", "state", "runtime")}
        for place in self.places.values():
            place.mkdir(parents=True, exist_ok=True)
        directories = "".join(f'{kind} = "{place}"\n' for kind, place in self.places.items())
        head, _, rest = settings.partition("[storage]\n")
        self.configuration.write_text(
            f'{head}[socket]\npath = "{self.path}"\n[access]\nadmins = ["{os.geteuid()}"]\n'
            f"[storage]\n{directories}{rest}"
        )
        self.process = None

    def launch(self, wrapper=()):
        """Starts the process without waiting until it serves. With a `wrapper`, `process` is the wrapper's."""
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        environment["SWIFT_BACKTRACE"] = "enable=no"
        with open(self.log_file, "ab" if self.keep_log else "wb") as log:
            self.process = subprocess.Popen(
                [*wrapper, self.program, "--config", self.configuration],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )

    def start(self):
        self.launch()
        self.wait_until_serving()
        return self

    def wait_until_serving(self, timeout=TIMEOUT):
        deadline = time.monotonic() + timeout
        while True:
            if self.process.poll() is not None:
                raise CheckFailed(f"the daemon ended with status {self.process.returncode}: {self.log_tail()}")
            try:
                with Client(self.path) as client:
                    if client.call("PING") == b"PONG":
                        return
            except (OSError, EOFError):
                pass
            if time.monotonic() > deadline:
                raise CheckFailed(f"the daemon does not answer: {self.log_tail()}")
            time.sleep(0.002)

    def connect(self, timeout=TIMEOUT):
        return Client(self.path, timeout)

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise CheckFailed("the daemon does not stop") from None

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def log_tail(self, count=600):
        return self.log_file.read_text(errors="replace")[-count:].strip() or "(empty log)"

    # Figures of the operating system.

    def descriptors(self):
        """Counts open descriptors by kind: a path, or `socket:[#]` and the like."""
        kinds = {}
        folder = f"/proc/{self.process.pid}/fd"
        for name in os.listdir(folder):
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue  # closed meanwhile
            kind = re.sub(r"\d+", "#", target) if ":" in target else target
            kinds[kind] = kinds.get(kind, 0) + 1
        return kinds

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def resident(self):
        """Bytes of memory: VmRSS of proc_pid_status(5)."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+)", text)[1]) * 1024

    def processor_time(self):
        """Processor time so far, in seconds, user and system."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def files(self, kind="cache", below=""):
        """All regular files below a directory of the store, with their sizes in bytes."""
        found = {}
        for folder, _, names in os.walk(self.places[kind] / below):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found[path] = os.lstat(path).st_size
                except OSError:
                    pass  # removed meanwhile
        return found


def make_image(text, size=2000):
    """Returns a PNG of one pixel that contains `text`, padded with unique bytes to `size`."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    text = text.encode()
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    tail = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    spare = max(0, size - len(head) - len(tail) - 24 - 3 - len(text))
    noise = hashlib.shake_256(text).digest(spare)
    return head + chunk(b"teXt", b"of\0" + text) + chunk(b"tcNo", noise) + tail


def text_of(image):
    """Returns the text of an image that make_image made; None for other bytes."""
    if image[:8] != b"\x89PNG\r\n\x1a\n" or image[37:41] != b"teXt":
        return None
    length = struct.unpack(">I", image[33:37])[0]
    return image[44 : 41 + length].decode(errors="replace")


class Origin:
    """An HTTP origin on loopback. `answer(path, headers)` returns status, headers and body; None closes the connection.
    """

    def __init__(self, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                found = answer(self.path, self.headers)
                if found is None:
                    self.close_connection = True
                    return
                status, headers, body = found
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 304:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # The daemon closes the connection of a download that it cancels.

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def eventually(is_so, timeout=TIMEOUT, pause=0.005):
    """Polls a condition; returns whether it became true in time."""
    deadline = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True

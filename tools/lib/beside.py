"""What the tools that run a real daemon share: the daemon, a client of it, pictures, and an origin that they come from.

Python's standard library only. It shares no code with what it looks at.
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

PATIENCE = 30  # seconds, for whatever is sure to come
TICKS = os.sysconf("SC_CLK_TCK")


class Wrong(Exception):
    """The daemon did what it may not do."""


class Refusal(str):
    """An error reply."""

    @property
    def code(self):
        return self.split(" ", 1)[0]


class Client:
    """As much of RESP2 as the tools need."""

    def __init__(self, path, patience=PATIENCE):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(patience)
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
            raise EOFError("the connection ended in place of a reply")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return Refusal(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind in (b"$", b"*") and int(rest) < 0:
            return None
        if kind == b"$":
            return self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise Wrong(f"no reply of RESP2: {line!r}")

    def info(self):
        """INFO's lines, as a dictionary of texts. Of a name that two sections have, the first: the store's `images`."""
        lines = self.call("INFO").decode().split("\r\n")
        return dict(line.split(":", 1) for line in reversed(lines) if ":" in line)


class Daemon:
    """thumbcached over the directories below `home`; it can be ended, and started again over them."""

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
        """Starts it, whatever becomes of it. Behind a `wrapper` the process is the wrapper's."""
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        environment["SWIFT_BACKTRACE"] = "enable=no"
        with open(self.log_file, "ab" if self.keep_log else "wb") as log:
            self.process = subprocess.Popen(
                [*wrapper, self.program, "--config", self.configuration],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )

    def start(self):
        self.launch()
        self.wait_until_it_answers()
        return self

    def wait_until_it_answers(self, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while True:
            if self.process.poll() is not None:
                raise Wrong(f"the daemon ended with status {self.process.returncode}: {self.last_words()}")
            try:
                with Client(self.path) as client:
                    if client.call("PING") == b"PONG":
                        return
            except (OSError, EOFError):
                pass
            if time.monotonic() > deadline:
                raise Wrong(f"the daemon does not answer: {self.last_words()}")
            time.sleep(0.002)

    def connect(self, patience=PATIENCE):
        return Client(self.path, patience)

    def stop(self):
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Wrong("the daemon does not stop") from None

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def last_words(self, count=600):
        return self.log_file.read_text(errors="replace")[-count:].strip() or "it said nothing"

    # What the system says of it.

    def descriptors(self):
        """What is open, by kind: the names of files, sockets and so on, without their numbers."""
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
        """Seconds so far, user and system."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def files(self, kind="cache", below=""):
        """Every plain file below a directory of the store, with its length in bytes."""
        found = {}
        for folder, _, names in os.walk(self.places[kind] / below):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found[path] = os.lstat(path).st_size
                except OSError:
                    pass  # gone meanwhile
        return found


def picture(text, size=2000):
    """A PNG of one pixel that holds `text`, and what nothing else holds up to `size` bytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    text = text.encode()
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    tail = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    spare = max(0, size - len(head) - len(tail) - 24 - 3 - len(text))
    noise = hashlib.shake_256(text).digest(spare)
    return head + chunk(b"teXt", b"of\0" + text) + chunk(b"tcNo", noise) + tail


def text_of(image):
    """What `picture` was told; None where that is not what these bytes are."""
    if image[:8] != b"\x89PNG\r\n\x1a\n" or image[37:41] != b"teXt":
        return None
    length = struct.unpack(">I", image[33:37])[0]
    return image[44 : 41 + length].decode(errors="replace")


class Origin:
    """An HTTP origin on this machine. `answer(path, headers)` gives status, headers and body, or None to hang up."""

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
                pass  # The daemon hangs up on downloads that it cancels.

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def eventually(is_so, patience=PATIENCE, pause=0.005):
    """Whether something becomes so that no event tells."""
    deadline = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True

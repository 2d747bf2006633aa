"""Shared parts of the demos: output, child processes, an origin, a host with a daemon, and checks of its disk."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOOLS = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 20  # seconds; the timeout of commands that take milliseconds
SBIN = ":/usr/sbin:/usr/local/sbin"  # missing from the PATH of ordinary users


class Output:
    """Standard output, with colors on a terminal."""

    def __init__(self):
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
        self.stage_number = 0
        self.failures = 0

    def styled(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.is_terminal else text

    def say(self, text=""):
        print(text, flush=True)

    def stage(self, title):
        self.stage_number += 1
        self.say()
        self.say(self.styled("1", f"{self.stage_number}. {title}"))

    def note(self, text):
        self.say("   " + text)

    def command(self, text, milliseconds):
        line = f"   $ {text}"
        cost = f"{milliseconds:.1f} ms"
        self.say(f"{line}{cost:>{max(len(cost) + 2, 100 - len(line))}}")

    def program_output(self, text):
        for line in text.splitlines():
            self.say(self.styled("2", "     " + (line if len(line) <= 110 else line[:109] + "…")))

    def check(self, holds, text):
        """Prints whether a check succeeds."""
        if not holds:
            self.failures += 1
        mark = self.styled("32", "ok") if holds else self.styled("1;31", "FAILED")
        self.say(f"   [{mark}] {text}")
        return holds

    def verdict(self, success):
        """Prints the last line. Returns whether all checks succeeded."""
        self.say()
        if self.failures:
            self.say(self.styled("1;31", f"{self.failures} checks FAILED."))
        else:
            self.say(self.styled("1", success))
        return self.failures == 0


class DemoFailure(Exception):
    """The demo cannot continue."""


class Demonstration:
    """A demo in a temporary directory. Terminates the processes that it started."""

    def __init__(self, programs, home):
        self.output = Output()
        self.programs = programs
        self.home = home
        self.children = []

    def start(self, argv, log):
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.children.append(child)
        return child

    def run(self, shown, argv, stdin=None):
        """Runs a command and prints it with its duration and output."""
        if stdin:
            shown += f" < {stdin.name}"
        with open(stdin or os.devnull, "rb") as source:
            started = time.perf_counter()
            done = subprocess.run(argv, stdin=source, capture_output=True, timeout=TIMEOUT)
            elapsed = (time.perf_counter() - started) * 1e3
        self.output.command(shown, elapsed)
        output = done.stdout + done.stderr
        printable = all(byte in b"\n\t" or 32 <= byte < 127 for byte in output)
        shown_output = output.decode().rstrip("\n") if printable else f"({len(output):,} bytes, {kind(output)})"
        self.output.program_output(shown_output)
        return done

    def wait_for(self, is_so, child=None, pause=0.001):
        """Polls a condition until it holds, the child exits or the timeout expires. Returns whether it holds."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and (child is None or child.poll() is None):
            if is_so():
                return True
            time.sleep(pause)
        return False

    def clear_up(self):
        for child in reversed(self.children):
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        shutil.rmtree(self.home)


class Origin:
    """nginx on loopback with profile images."""

    def __init__(self, demo, count):
        self.demo = demo
        self.images_directory = demo.home / "images"
        self.made = subprocess.run(
            [TOOLS / "make-images", self.images_directory, str(count), "--largest", "65536"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self.friends = sorted(self.images_directory.iterdir())
        place = demo.home / "nginx"
        place.mkdir()
        self.access_log = place / "access.log"
        program = shutil.which("nginx", path=os.environ["PATH"] + SBIN)
        if not program:
            raise DemoFailure("nginx is not installed: tools/install-dependencies demo")
        for _ in range(5):  # another process may take the port before nginx does
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
            (place / "nginx.conf").write_text(
                NGINX.format(
                    user="user root;" if os.geteuid() == 0 else "", place=place, port=self.port, images=self.images_directory
                )
            )
            with open(place / "stderr.log", "wb") as log:
                child = demo.start([program, "-c", place / "nginx.conf", "-e", place / "error.log", "-p", place], log)
            if demo.wait_for(lambda: self.answers("/ready"), child):
                return
        raise DemoFailure(f"nginx did not start:\n{(place / 'stderr.log').read_text()}")

    def answers(self, path):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT) as connection:
                connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                while connection.recv(4096):
                    pass
            return True
        except OSError:
            return False

    def requests(self):
        """Counts the requests to nginx. Its single worker logs requests in order, so the log is complete once it has
        the request that this method sends."""
        marker = f"/marker-{time.monotonic_ns()}"
        self.answers(marker)
        if not self.demo.wait_for(lambda: marker in self.access_log.read_text()):
            raise DemoFailure("nginx did not log a request")
        lines = self.access_log.read_text().splitlines()
        return sum(not line.startswith(("/marker-", "/ready")) for line in lines)


class Host:
    """A daemon with its directories, commands that are sent to it, and checks of its disk."""

    def __init__(self, demo, home, origin, variable="SOCKET", settings=""):
        """`variable` stands for the socket in printed commands; `settings` is appended to the configuration."""
        self.demo, self.output, self.home, self.origin = demo, demo.output, home, origin
        self.variable, self.settings = variable, settings
        self.socket = home / "socket"
        self.stores = [home / name for name in ("cache", "state", "runtime")]

    # The daemon.

    def start_daemon(self):
        """Returns the milliseconds until the daemon answers PING."""
        for store in self.stores:
            store.mkdir(parents=True, exist_ok=True)
        settings = self.home / "thumbcached.toml"
        settings.write_text(
            SETTINGS.format(
                socket=json.dumps(str(self.socket)),
                origin=self.origin.url,
                **{s.name: json.dumps(str(s)) for s in self.stores},
            )
            + self.settings
        )
        log_file = self.home / "daemon.log"
        with open(log_file, "ab") as log:
            started = time.perf_counter()
            self.daemon = self.demo.start([self.demo.programs / "thumbcached", "--config", settings], log)
        if not self.demo.wait_for(self.answers_ping, self.daemon):
            raise DemoFailure(f"the daemon did not start:\n{log_file.read_text()}")
        return (time.perf_counter() - started) * 1e3

    def answers_ping(self):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self.socket))
                connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False

    def stop_daemon(self):
        started = time.perf_counter()
        self.daemon.terminate()
        return self.daemon.wait(TIMEOUT), (time.perf_counter() - started) * 1e3

    # Commands.

    def redis(self, words, stdin=None):
        argv = ["redis-cli", "-s", self.socket, *words.split()]
        return self.demo.run(f"redis-cli -s ${self.variable} {words}", argv, stdin).stdout

    def quiet(self, words):
        """Like `redis`, without output."""
        argv = ["redis-cli", "-s", self.socket, *words.split()]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT).stdout

    def ctl(self, words):
        program = self.demo.programs / "thumbcachectl"
        done = self.demo.run(f"thumbcachectl {words}", [program, "--socket", self.socket, *words.split()])
        if done.returncode:
            self.output.check(False, f"thumbcachectl {words} ended with status {done.returncode}")

    def fetch_all(self, friends):
        """Gets every image of alice with one process each. Returns the milliseconds and the number of wrong images."""
        target = self.home / "fetched"
        wrong, elapsed = 0, 0.0
        for friend in friends:
            target.unlink(missing_ok=True)
            program = self.demo.programs / "thumbcachectl"
            argv = [program, "--socket", self.socket, "get", "alice", friend.stem, "--output", target]
            started = time.perf_counter()
            done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT)
            elapsed += (time.perf_counter() - started) * 1e3
            if done.returncode or not target.exists() or target.read_bytes() != friend.read_bytes():
                wrong += 1
                self.output.program_output(f"{friend.name}: {done.stderr.strip() or 'different bytes'}")
        target.unlink(missing_ok=True)
        return elapsed, wrong

    # Checks of the disk.

    def files(self):
        # os.walk skips files that disappear; the daemon empties its trash in the background.
        return sorted(
            os.path.join(place, name) for s in self.stores for place, _, names in os.walk(s) for name in names
        )

    def prove_nothing_shows(self, friends):
        # Long enough not to occur in ciphertext by chance.
        words = ["alice", "robert", "friend-", f":{self.origin.port}/", "127.0.0.1"]
        argv = ["grep", "-rlaF"] + [part for word in words for part in ("-e", word)] + [str(s) for s in self.stores]
        self.output.note(f"$ grep -rlaF -e {' -e '.join(words)} cache state runtime")
        found = subprocess.run(argv, capture_output=True, text=True)
        named = [file for file in self.files() if any(word in file[len(str(self.home)) :] for word in words)]
        self.output.check(
            found.returncode == 1 and not named, "no file name or content has a user, a profile or a URL"
        )
        # 16 bytes each from the start, the middle and the end of each image; these bytes are random.
        parts = []
        for friend in friends:
            image = friend.read_bytes()
            parts += [image[place : place + 16] for place in (300, len(image) // 2, len(image) - 500)]
        contents = self.contents()
        leaks = [part for part in parts if part in contents]
        self.output.check(not leaks, f"no file has a part of an image ({len(parts)} parts searched)")

    def contents(self):
        """Returns the concatenated contents of all files."""
        everything = bytearray()
        for file in self.files():
            try:
                everything += pathlib.Path(file).read_bytes()
            except FileNotFoundError:
                pass  # removed from the trash meanwhile
        return bytes(everything)

    def images(self):
        return [file for file in self.files() if "/cache/users/" in file or "/cache/trash/" in file]

    def keys(self):
        return [file for file in self.files() if re.search(r"/(keys|sessions)/\d+/", file)]

    def check_nothing_is_left(self, friends):
        # The images are unreadable at once; their files are deleted in the background.
        self.demo.wait_for(lambda: not self.images(), pause=0.002)
        self.output.check(not self.images(), "no image file is left, and the trash is empty")
        self.output.check(not self.keys(), "no key and no session file is left")
        rest = [file.replace(str(self.home) + "/", "") for file in self.files()]
        self.output.note(f"remaining files belong to the store: {', '.join(rest)}")
        reserve = self.stores[1] / "keys" / "reserve"
        if reserve.exists() and not any(reserve.read_bytes()):
            self.output.note("(keys/reserve has zeros: space for a logout on a full disk)")
        self.prove_nothing_shows(friends)


def kind(data):
    """Returns the image format by magic number."""
    for name, start in (("PNG", b"\x89PNG"), ("JPEG", b"\xff\xd8"), ("GIF", b"GIF8"), ("WebP", b"RIFF")):
        if data.startswith(start):
            return name
    return "AVIF" if data[4:12] == b"ftypavif" else "binary"


def perform(name, demo_class, needed):
    """Runs a demo with the programs in the directory that the command line names, and exits."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: tools/{name} PROGRAMS")
    programs = pathlib.Path(sys.argv[1]).resolve()
    for program in needed:
        if not os.access(programs / program, os.X_OK):
            sys.exit(f"{name}: {programs / program} is missing; make {name} builds it")

    def stop(number, _):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    demo = demo_class(programs, pathlib.Path(tempfile.mkdtemp(prefix=f"thumbcached-{name}-")))
    try:
        succeeded = demo.run_demo()
    except (DemoFailure, subprocess.SubprocessError) as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        succeeded = False
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted", file=sys.stderr)
        succeeded = False
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
        demo.clear_up()
    sys.exit(0 if succeeded else 1)


NGINX = """
daemon off;
worker_processes 1;
{user}
pid {place}/pid;
error_log {place}/error.log;
events {{ worker_connections 512; }}
http {{
    log_format path '$uri $status';
    access_log {place}/access.log path;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    types {{
        image/png png;
        image/jpeg jpg;
        image/gif gif;
        image/webp webp;
        image/avif avif;
    }}
    server {{
        listen 127.0.0.1:{port};
        root {images};
        location / {{ try_files $uri $uri.png $uri.jpg $uri.gif $uri.webp $uri.avif =404; }}
    }}
}}
"""

SETTINGS = """\
[socket]
path = {socket}

[storage]
cache = {cache}
state = {state}
runtime = {runtime}

[origins.default]
url = "{origin}/{{profile}}"
allow-private-addresses = true    # nginx is on loopback
"""

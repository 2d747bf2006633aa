"""What the demonstrations share: the paper they write on, the programs they start, an origin, a host with a daemon, and
what is proved of its disk.

Python's standard library only.
"""

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
PATIENCE = 20  # seconds for what takes milliseconds
SBIN = ":/usr/sbin:/usr/local/sbin"  # not on an ordinary user's PATH


class Paper:
    """What the reader sees. Bold and colours on a terminal only."""

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

    def output(self, text):
        for line in text.splitlines():
            self.say(self.styled("2", "     " + (line if len(line) <= 110 else line[:109] + "…")))

    def proof(self, holds, text):
        """A claim, and whether it holds."""
        if not holds:
            self.failures += 1
        mark = self.styled("32", "proved") if holds else self.styled("1;31", "FAILED")
        self.say(f"   [{mark}] {text}")
        return holds

    def verdict(self, success):
        """The last line. Whether every proof held."""
        self.say()
        if self.failures:
            self.say(self.styled("1;31", f"{self.failures} proofs FAILED."))
        else:
            self.say(self.styled("1", success))
        return self.failures == 0


class Trouble(Exception):
    """The demonstration cannot go on."""


class Demonstration:
    """A story that is told in a directory of its own. Whatever it starts ends with it, and nothing else does."""

    def __init__(self, programs, home):
        self.paper = Paper()
        self.programs = programs
        self.home = home
        self.children = []

    def start(self, argv, log):
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.children.append(child)
        return child

    def run(self, shown, argv, stdin=None):
        """Runs a command, and shows it with what it printed and cost."""
        if stdin:
            shown += f" < {stdin.name}"
        with open(stdin or os.devnull, "rb") as source:
            started = time.perf_counter()
            done = subprocess.run(argv, stdin=source, capture_output=True, timeout=PATIENCE)
            elapsed = (time.perf_counter() - started) * 1e3
        self.paper.command(shown, elapsed)
        output = done.stdout + done.stderr
        printable = all(byte in b"\n\t" or 32 <= byte < 127 for byte in output)
        self.paper.output(output.decode().rstrip("\n") if printable else f"({len(output):,} bytes, {kind(output)})")
        return done

    def comes(self, is_so, child=None, pause=0.001):
        """Asks again and again, until it is so, or the child has ended, or patience is at its end."""
        deadline = time.monotonic() + PATIENCE
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
    """nginx on loopback, with pictures of people."""

    def __init__(self, demo, count):
        self.demo = demo
        self.pictures = demo.home / "pictures"
        self.made = subprocess.run(
            [TOOLS / "make-images", self.pictures, str(count), "--largest", "65536"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self.friends = sorted(self.pictures.iterdir())
        place = demo.home / "nginx"
        place.mkdir()
        self.access_log = place / "access.log"
        program = shutil.which("nginx", path=os.environ["PATH"] + SBIN)
        if not program:
            raise Trouble("nginx is not installed: tools/install-dependencies demo")
        for _ in range(5):  # the free port may be another's when nginx takes it
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
            (place / "nginx.conf").write_text(
                NGINX.format(
                    user="user root;" if os.geteuid() == 0 else "", place=place, port=self.port, pictures=self.pictures
                )
            )
            with open(place / "stderr.log", "wb") as log:
                child = demo.start([program, "-c", place / "nginx.conf", "-e", place / "error.log", "-p", place], log)
            if demo.comes(lambda: self.answers("/ready"), child):
                return
        raise Trouble(f"nginx did not start:\n{(place / 'stderr.log').read_text()}")

    def answers(self, path):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
                connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                while connection.recv(4096):
                    pass
            return True
        except OSError:
            return False

    def requests(self):
        """How often nginx was asked. Its one worker logs a request before it takes up the next; so once one of our own
        is in the log, so is everything before it."""
        marker = f"/marker-{time.monotonic_ns()}"
        self.answers(marker)
        if not self.demo.comes(lambda: marker in self.access_log.read_text()):
            raise Trouble("nginx does not log")
        lines = self.access_log.read_text().splitlines()
        return sum(not line.startswith(("/marker-", "/ready")) for line in lines)


class Host:
    """A daemon over three directories, the commands that are given to it, and what is proved of its disk."""

    def __init__(self, demo, home, origin, variable="SOCKET", settings=""):
        """`variable` is what the socket is called on paper, `settings` are more lines for the daemon."""
        self.demo, self.paper, self.home, self.origin = demo, demo.paper, home, origin
        self.variable, self.settings = variable, settings
        self.socket = home / "socket"
        self.stores = [home / name for name in ("cache", "state", "runtime")]

    # The daemon.

    def start_daemon(self):
        """Gives the milliseconds until it answers."""
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
        if not self.demo.comes(self.answers_ping, self.daemon):
            raise Trouble(f"the daemon did not start:\n{log_file.read_text()}")
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
        return self.daemon.wait(PATIENCE), (time.perf_counter() - started) * 1e3

    # Commands.

    def redis(self, words, stdin=None):
        argv = ["redis-cli", "-s", self.socket, *words.split()]
        return self.demo.run(f"redis-cli -s ${self.variable} {words}", argv, stdin).stdout

    def quiet(self, words):
        """As much as `redis`, without a line on paper."""
        argv = ["redis-cli", "-s", self.socket, *words.split()]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE).stdout

    def ctl(self, words):
        program = self.demo.programs / "thumbcachectl"
        done = self.demo.run(f"thumbcachectl {words}", [program, "--socket", self.socket, *words.split()])
        if done.returncode:
            self.paper.proof(False, f"thumbcachectl {words} ended with status {done.returncode}")

    def fetch_all(self, friends):
        """Gets every picture of alice's, with a process each; gives the milliseconds, and how many were wrong."""
        target = self.home / "fetched"
        wrong, elapsed = 0, 0.0
        for friend in friends:
            target.unlink(missing_ok=True)
            program = self.demo.programs / "thumbcachectl"
            argv = [program, "--socket", self.socket, "get", "alice", friend.stem, "--output", target]
            started = time.perf_counter()
            done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
            elapsed += (time.perf_counter() - started) * 1e3
            if done.returncode or not target.exists() or target.read_bytes() != friend.read_bytes():
                wrong += 1
                self.paper.output(f"{friend.name}: {done.stderr.strip() or 'other bytes'}")
        target.unlink(missing_ok=True)
        return elapsed, wrong

    # What is proved of the disk.

    def files(self):
        # os.walk passes over what vanishes meanwhile: the trash is being emptied.
        return sorted(
            os.path.join(place, name) for s in self.stores for place, _, names in os.walk(s) for name in names
        )

    def prove_nothing_shows(self, friends):
        # Long enough not to lie in noise by chance.
        words = ["alice", "robert", "friend-", f":{self.origin.port}/", "127.0.0.1"]
        argv = ["grep", "-rlaF"] + [part for word in words for part in ("-e", word)] + [str(s) for s in self.stores]
        self.paper.note(f"$ grep -rlaF -e {' -e '.join(words)} cache state runtime")
        found = subprocess.run(argv, capture_output=True, text=True)
        named = [file for file in self.files() if any(word in file[len(str(self.home)) :] for word in words)]
        self.paper.proof(
            found.returncode == 1 and not named, "no user, no profile, no URL: not in a file, not in a name"
        )
        # 16 bytes each of the beginning, the middle and the end of each picture, where its own random bytes are.
        parts = []
        for friend in friends:
            picture = friend.read_bytes()
            parts += [picture[place : place + 16] for place in (300, len(picture) // 2, len(picture) - 500)]
        contents = self.contents()
        leaks = [part for part in parts if part in contents]
        self.paper.proof(not leaks, f"no piece of a picture either ({len(parts)} pieces looked for)")

    def contents(self):
        """All that lies on disk, in a row."""
        everything = bytearray()
        for file in self.files():
            try:
                everything += pathlib.Path(file).read_bytes()
            except FileNotFoundError:
                pass  # just emptied out of the trash
        return bytes(everything)

    def images(self):
        return [file for file in self.files() if "/cache/users/" in file or "/cache/trash/" in file]

    def keys(self):
        return [file for file in self.files() if re.search(r"/(keys|sessions)/\d+/", file)]

    def prove_nothing_is_left(self, friends):
        # Ended pictures are unreadable at once; their files go in the background.
        self.demo.comes(lambda: not self.images(), pause=0.002)
        self.paper.proof(not self.images(), "no file: none of a user's, and the trash is empty")
        self.paper.proof(not self.keys(), "no key and no session")
        rest = [file.replace(str(self.home) + "/", "") for file in self.files()]
        self.paper.note(f"what remains is the store's own: {', '.join(rest)}")
        reserve = self.stores[1] / "keys" / "reserve"
        if reserve.exists() and not any(reserve.read_bytes()):
            self.paper.note("(keys/reserve is zeros: room that a log-out needs should the disk be full)")
        self.prove_nothing_shows(friends)


def kind(data):
    """What the bytes are, by how they begin."""
    for name, start in (("PNG", b"\x89PNG"), ("JPEG", b"\xff\xd8"), ("GIF", b"GIF8"), ("WebP", b"RIFF")):
        if data.startswith(start):
            return name
    return "AVIF" if data[4:12] == b"ftypavif" else "binary"


def perform(name, story, needed):
    """What main is: tells the story with the programs of the directory that the command line names, and exits."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: tools/{name} DIRECTORY-OF-THE-PROGRAMS")
    programs = pathlib.Path(sys.argv[1]).resolve()
    for program in needed:
        if not os.access(programs / program, os.X_OK):
            sys.exit(f"{name}: {programs / program} is missing: make {name} builds it")

    def stop(number, _):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    demo = story(programs, pathlib.Path(tempfile.mkdtemp(prefix=f"thumbcached-{name}-")))
    try:
        succeeded = demo.tell()
    except (Trouble, subprocess.SubprocessError) as trouble:
        print(f"{name}: {trouble}", file=sys.stderr)
        succeeded = False
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted", file=sys.stderr)
        succeeded = False
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C does not keep it from clearing up
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
        root {pictures};
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

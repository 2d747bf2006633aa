"""P12: the effect of one uid's flood on the requests of another uid."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

from figures import Figure, Row, show
from rows.floods import FLOODS
from world import disk, images, peers, processes, resp
from world.background import set_idle_priority

#: Unused uids. LEAVER is separate, because root's hook logs out all users of a uid.
BYSTANDER, LEAVER, FLOODING = 61_001, 61_002, 61_003
#: The operations of the bystander and root, by their names in `bystander.c`.
OPERATIONS = {"hit": "hit", "miss": "miss", "login": "login", "logout": "logout", "hook": "root's logout"}
MEDIAN_GOAL, TAIL_GOAL = 3.0, 5.0
#: The latencies without a flood are measured again after this many floods.
QUIET_EVERY = 5
#: Timeout of the bystander in seconds, which is also the latency of a request without a reply.
TIMEOUT = 10
#: Seconds between the start of the flood and of the bystander, so that connections are open and queues are full.
HEAD_START = 0.3


def rows(run):
    folder = run.home / "fairness"
    image_folder = folder / "images"
    image_folder.mkdir(parents=True)
    (image_folder / "one").write_bytes(images.image(8 << 10))
    # So that other users can reach the socket.
    for place in (run.home, folder):
        place.chmod(0o711)
    with disk.file_system(folder, 300_000) as place, origin(folder) as host:
        yield from Fairness(run, folder, place, host).rows()


@contextlib.contextmanager
def origin(folder):
    """Runs one origin for all uids. The first segment of a path is the user: for some users of the flood the origin
    returns an error or never responds.
    """
    port = processes.free_port()
    silent = folder / "silent.sock"
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(silent))
        nobody.listen(4096)
        with peers.nginx(
            folder,
            "origin",
            f"""
server {{
  listen 127.0.0.1:{port} backlog=4096; root {folder}/images;
  location / {{ rewrite ^ /one break; }}
  location /limited/ {{ add_header Retry-After 600 always; return 429; }}
  location /broken/ {{ return 500; }}
  location /silent/ {{ proxy_pass http://unix:{silent}; proxy_read_timeout 600s; }}
}}""",
            1,
            port,
        ) as server:
            server.url = f"http://127.0.0.1:{port}/{{user}}"
            yield server


class Fairness:
    """Starts a daemon with default limits for each flood and measures a bystander's requests."""

    def __init__(self, run, folder, place, host):
        self.run = run
        self.folder = folder
        self.place = place
        self.host = host
        self.seconds = run.scaled(4, 1)
        self.programs = {
            name: run.subject.compile(name, folder, f"{name}.c", *shared)
            for name, shared in (("flood", ["client.c"]), ("bystander", ["client.c"]), ("putloop", []))
        }
        self.number = 0

    def rows(self):
        quiet, found = [], []
        for number, flood in enumerate(FLOODS):
            if number % QUIET_EVERY == 0:
                quiet.append(self.measure(None))
            found.append(self.measure(flood))
        quiet.append(self.measure(None))
        calm = Latencies.together(latencies for latencies, _ in quiet)
        worst = max((latencies for latencies, _ in quiet), key=lambda latencies: latencies.worst_median(calm))
        yield row(
            "P12 quiet",
            "nothing else runs, the worst of several runs",
            calm,
            worst,
            {},
            None,
            f"the goal also limits each p99 to {TAIL_GOAL:.0f} times the quiet one, and permits no errors",
        )
        for flood, (latencies, figures) in zip(FLOODS, found):
            yield row(f"P12 {flood.name}", f"another uid {flood.what}", calm, latencies, figures, MEDIAN_GOAL)
        for name, what, count, command, is_idle in self.limits():
            with running(command, count, is_idle):
                latencies, _ = self.measure(None)
            yield row(f"P12 {name}", what, calm, latencies, {}, None)

    def limits(self):
        """Returns programs that load the machine without using the daemon: a lower bound for any daemon."""
        cores = os.cpu_count()
        compute = [sys.executable, "-c", "while True: pass"]
        files = self.place / "putloop"
        files.mkdir()
        put = [self.programs["putloop"], files, self.folder / "images" / "one", 1_000_000_000, 20_000]
        return [
            (
                "limit",
                "programs use the idle CPU time, as the floods' clients do",
                cores,
                compute,
                True,
            ),
            ("limit, 1 core", "one program computes", 1, compute, False),
            ("limit, all cores", "one program per core computes", cores, compute, False),
            ("limit, disk", "a program writes files of 8 KiB to the same disk", 1, put, True),
        ]

    def measure(self, flood):
        """Returns the bystander's latencies, and the results of the flood."""
        self.number += 1
        home, store = self.folder / str(self.number), self.place / str(self.number)
        for directory in (home, store):
            directory.mkdir()
        home.chmod(0o711)
        with self.run.subject.start(home, origin=self.host.url, store=store, is_limited=True) as daemon:
            daemon.wait_for(daemon.address)
            with as_uid(BYSTANDER), resp.Client(daemon.address) as client:
                client("LOGIN", "me")
                client("PUT", "me", "bob", images.image(8 << 10))
            if flood is None:
                found = self.bystander(daemon), {}
            else:
                found = self.measure_flood(flood, daemon, home)
            daemon.stop(signal.SIGKILL)
        for reason in found[0].reasons:
            print(f"bench: {flood.name if flood else 'quiet'}: {reason}", file=sys.stderr)
        return found

    def measure_flood(self, flood, daemon, home):
        (home / "frames").write_bytes(flood.frames)
        with as_uid(FLOODING):
            with resp.Client(daemon.address) as client:
                for user in ("fair", "silent", "limited", "broken"):
                    client("LOGIN", user)
            flood.prepare(daemon.address)
        words = [
            self.programs["flood"],
            daemon.address,
            FLOODING,
            flood.idle,
            flood.connections,
            flood.ahead,
            len(flood.requests),
            home / "frames",
        ]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            set_idle_priority(process.pid)
            begin = time.monotonic()
            time.sleep(HEAD_START)
            before, since = daemon.cpu(), time.monotonic()
            latencies = self.bystander(daemon)
            cores = (daemon.cpu() - before) / (time.monotonic() - since)
            process.terminate()
            output, complaint = process.communicate(timeout=30)
            seconds = time.monotonic() - begin
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise processes.Failed(
                f"flood {flood.name}: status {process.returncode}: {complaint.decode()[-400:]}"
            )
        answered, refused, closed, cpu = (int(number) for number in output.split())
        return latencies, {
            "flood, requests/s": answered / seconds,
            "errors of the flood, %": 100 * refused / max(answered, 1),
            "closed connections": closed,
            "flood CPU, cores": cpu / 1e6 / seconds,
            "daemon CPU, cores": cores,
        }

    def bystander(self, daemon):
        output = processes.run(
            [
                self.programs["bystander"],
                daemon.address,
                BYSTANDER,
                LEAVER,
                self.seconds,
                TIMEOUT,
                self.number * 1_000_000,
            ]
        )
        return Latencies(output)


class Latencies:
    """The bystander's output: for each operation the latencies in microseconds and the number of errors."""

    def __init__(self, output):
        self.samples, self.errors, self.reasons = {}, {}, []
        for line in output.splitlines():
            if line.startswith("!"):
                self.reasons.append(line[2:])
                continue
            name, errors, *samples = line.split()
            self.errors[name] = int(errors)
            self.samples[name] = [int(sample) for sample in samples]

    @classmethod
    def together(cls, several):
        """Returns the latencies of several runs as one."""
        whole = cls("")
        for latencies in several:
            for name, samples in latencies.samples.items():
                whole.samples.setdefault(name, []).extend(samples)
        return whole

    def at(self, name, share):
        """Returns the latency quantile `share` in milliseconds."""
        # Without a login there is no logout.
        samples = sorted(self.samples[name]) or [TIMEOUT * 1_000_000]
        return max(samples[min(int(len(samples) * share), len(samples) - 1)], 1) / 1e3

    def worst(self, quiet, share):
        return max(self.at(name, share) / quiet.at(name, share) for name in OPERATIONS)

    def worst_median(self, quiet):
        return self.worst(quiet, 0.5)

    def worst_tail(self, quiet):
        return self.worst(quiet, 0.99)


def row(id, condition, quiet, latencies, figures, goal, note=""):
    columns = []
    for name, title in OPERATIONS.items():
        columns += [Figure(title, "ms", [latencies.at(name, 0.5)]), Figure("p99", "ms", [latencies.at(name, 0.99)])]
    errors, tail = sum(latencies.errors.values()), latencies.worst_tail(quiet)
    columns += [Figure("p99 ratio", "", [tail]), Figure("errors", "", [errors])]
    columns += [Figure(name, "", [value]) for name, value in figures.items()]
    return Row(
        id,
        f"median latency of the most affected operation while {condition}",
        "quiet",
        latencies.worst_median(quiet),
        goal,
        False,
        columns,
        note,
        missed=f"{errors} errors" if errors else f"p99 {show(tail)} times" if tail > TAIL_GOAL else "",
        is_line=True,
    )


@contextlib.contextmanager
def as_uid(uid):
    """Makes connections within this context belong to the uid: the kernel records the effective one."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def running(command, count, is_idle):
    """Runs `count` instances of a program during this context."""
    started = [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        for process in started:
            if is_idle:
                set_idle_priority(process.pid)
        time.sleep(HEAD_START)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()

"""P12: what one uid's flood does to another's requests."""

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
from world.beside import stand_back

#: Any that nobody has. Whose log-outs root's hook sends is a third, since it logs out all of that uid's users.
BYSTANDER, LEAVER, FLOODING = 61_001, 61_002, 61_003
#: What the bystander and root do, by the names that `bystander.c` has for it.
OPERATIONS = {"hit": "hit", "miss": "miss", "log-in": "log-in", "log-out": "log-out", "hook": "root's log-out"}
MEDIAN_GOAL, TAIL_GOAL = 3.0, 5.0
#: After how many floods it is looked again how quiet the machine is.
QUIET_EVERY = 5
#: How many seconds the bystander waits for an answer at last, and what one counts that never came.
PATIENCE = 10
#: How long the flood goes on before the bystander begins, so that its connections are made and its queues are full.
HEAD_START = 0.3


def rows(run):
    folder = run.home / "fairness"
    pictures = folder / "images"
    pictures.mkdir(parents=True)
    (pictures / "one").write_bytes(images.image(8 << 10))
    # Others than root have to find the socket.
    for place in (run.home, folder):
        place.chmod(0o711)
    with disk.own(folder, 300_000) as place, origin(folder) as host:
        yield from Fairness(run, folder, place, host).rows()


@contextlib.contextmanager
def origin(folder):
    """One host for all, which looks at the user in a path: some of the flood's get what a host says that has had
    enough.
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
    """A daemon with the limits it comes with, anew for each flood, and a bystander who uses it."""

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
                quiet.append(self.beside(None))
            found.append(self.beside(flood))
        quiet.append(self.beside(None))
        calm = Latencies.together(latencies for latencies, _ in quiet)
        worst = max((latencies for latencies, _ in quiet), key=lambda latencies: latencies.worst_median(calm))
        yield row(
            "P12 quiet",
            "nothing, the worst of several times",
            calm,
            worst,
            {},
            None,
            f"the goal is also that each p99 is at most {TAIL_GOAL:.0f} times the quiet one, "
            "and that nothing is an error",
        )
        for flood, (latencies, figures) in zip(FLOODS, found):
            yield row(f"P12 {flood.name}", f"a uid that {flood.what}", calm, latencies, figures, MEDIAN_GOAL)
        for name, what, count, command, is_idle in self.limits():
            with company(command, count, is_idle):
                latencies, _ = self.beside(None)
            yield row(f"P12 {name}", what, calm, latencies, {}, None)

    def limits(self):
        """What shares the machine with the daemon and asks it nothing: beside that no daemon can be better."""
        cores = os.cpu_count()
        compute = [sys.executable, "-c", "while True: pass"]
        files = self.place / "putloop"
        files.mkdir()
        put = [self.programs["putloop"], files, self.folder / "images" / "one", 1_000_000_000, 20_000]
        return [
            (
                "limit",
                "programs that compute with the processor time that is left, as the floods' clients do",
                cores,
                compute,
                True,
            ),
            ("limit, 1 core", "a program that computes", 1, compute, False),
            ("limit, all cores", "programs that compute, one for each core", cores, compute, False),
            ("limit, disk", "a program that writes files of 8 KiB to the same disk", 1, put, True),
        ]

    def beside(self, flood):
        """The bystander's latencies, and what the flood came to."""
        self.number += 1
        home, store = self.folder / str(self.number), self.place / str(self.number)
        for directory in (home, store):
            directory.mkdir()
        home.chmod(0o711)
        with self.run.subject.start(home, origin=self.host.url, store=store, is_limited=True) as daemon:
            daemon.wait_for(daemon.address)
            with as_uid(BYSTANDER), resp.Client(daemon.address) as client:
                client("LOGIN", "me")
                client("PUT", "me", "face", images.image(8 << 10))
            if flood is None:
                found = self.bystander(daemon), {}
            else:
                found = self.flooded(flood, daemon, home)
            daemon.stop(signal.SIGKILL)
        for reason in found[0].reasons:
            print(f"bench: beside {flood.name if flood else 'nothing'}: {reason}", file=sys.stderr)
        return found

    def flooded(self, flood, daemon, home):
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
            stand_back(process.pid)
            begin = time.monotonic()
            time.sleep(HEAD_START)
            before, since = daemon.cpu(), time.monotonic()
            latencies = self.bystander(daemon)
            cores = (daemon.cpu() - before) / (time.monotonic() - since)
            process.terminate()
            said, complaint = process.communicate(timeout=30)
            seconds = time.monotonic() - begin
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise processes.Failed(
                f"the flood '{flood.name}': status {process.returncode}: {complaint.decode()[-400:]}"
            )
        answered, refused, closed, cpu = (int(number) for number in said.split())
        return latencies, {
            "flood, requests/s": answered / seconds,
            "of these errors, %": 100 * refused / max(answered, 1),
            "closed": closed,
            "client, cores": cpu / 1e6 / seconds,
            "daemon, cores": cores,
        }

    def bystander(self, daemon):
        said = processes.run(
            [
                self.programs["bystander"],
                daemon.address,
                BYSTANDER,
                LEAVER,
                self.seconds,
                PATIENCE,
                self.number * 1_000_000,
            ]
        )
        return Latencies(said)


class Latencies:
    """What the bystander said: for each operation the microseconds of its answers, and how many were errors."""

    def __init__(self, said):
        self.samples, self.errors, self.reasons = {}, {}, []
        for line in said.splitlines():
            if line.startswith("!"):
                self.reasons.append(line[2:])
                continue
            name, errors, *samples = line.split()
            self.errors[name] = int(errors)
            self.samples[name] = [int(sample) for sample in samples]

    @classmethod
    def together(cls, several):
        """All of several times as one."""
        whole = cls("")
        for latencies in several:
            for name, samples in latencies.samples.items():
                whole.samples.setdefault(name, []).extend(samples)
        return whole

    def at(self, name, share):
        """Milliseconds that a share of the answers took at most."""
        # Where a log-in has no answer, no log-out follows it.
        samples = sorted(self.samples[name]) or [PATIENCE * 1_000_000]
        return max(samples[min(int(len(samples) * share), len(samples) - 1)], 1) / 1e3

    def worst(self, quiet, share):
        return max(self.at(name, share) / quiet.at(name, share) for name in OPERATIONS)

    def worst_median(self, quiet):
        return self.worst(quiet, 0.5)

    def worst_tail(self, quiet):
        return self.worst(quiet, 0.99)


def row(id, beside, quiet, latencies, figures, goal, note=""):
    columns = []
    for name, title in OPERATIONS.items():
        columns += [Figure(title, "ms", [latencies.at(name, 0.5)]), Figure("p99", "ms", [latencies.at(name, 0.99)])]
    errors, tail = sum(latencies.errors.values()), latencies.worst_tail(quiet)
    columns += [Figure("p99 ratio", "", [tail]), Figure("errors", "", [errors])]
    columns += [Figure(name, "", [value]) for name, value in figures.items()]
    return Row(
        id,
        f"median of what is slowed most beside {beside}",
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
    """Connections that are made in here are that uid's: the kernel notes the effective one."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def company(command, count, is_idle):
    """Runs a program so many times, for as long as this lasts."""
    started = [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        for process in started:
            if is_idle:
                stand_back(process.pid)
        time.sleep(HEAD_START)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()

"""P11: how long hits take while much else goes on."""

import os
import shutil
import signal

import clients
import disk
import images
import peers
import processes
import resp
import rows_writes
from beside import Beside, stand_back
from figures import Figure, Row, ratio

#: Connections that ask for hits: few enough that a hit waits for its turn and not for its like.
CONNECTIONS = 4
#: What goes on beside them each second, of what one client after another can do.
MISSES = 200
STEPS = 500
#: After how many misses it is looked whether the store still deletes: ten times a second.
LOOK_EVERY = 20
PICTURE = images.image(8 << 10)
#: As many as the origin has.
PICTURES = 1_000


def rows(run):
    folder = run.home / "tail"
    pictures = folder / "images"
    images.write_images(pictures, PICTURES, 8 << 10)
    with disk.own(folder, run.scaled(300_000, 20_000)) as place, peers.origin(folder, pictures) as origin:
        for pid in origin.pids():
            stand_back(pid)
        tail = Tail(run, place, origin)
        yield tail.purge()
        yield tail.other("eviction", "a full quota makes each of 500 PUTs/s evict an image", put, quota="4MiB")
        yield tail.other("revalidation", "500 stale images/s are served and revalidated", revalidate, ttl="1s")
        yield tail.other("log", f"{MISSES} misses/s are downloaded and told of in a debug log", miss, MISSES, level="debug")
        yield tail.start()


class Tail:
    """Hits of alice's one image, quiet and beside something else, with a daemon of its own in each round."""

    def __init__(self, run, place, origin):
        self.run = run
        self.place = place
        self.origin = origin
        self.server_core, self.client_core = (0, 1) if (os.cpu_count() or 1) > 1 else (0, 0)
        self.requests = run.scaled(300_000, 20_000)

    def daemon(self, home, **settings):
        return self.run.subject.start(home, origin=self.origin.url, core=self.server_core, **settings)

    def p99(self, daemon):
        return clients.redis_benchmark(
            daemon.address, ["GET", "alice", "me"], self.requests, connections=CONNECTIONS,
            core=self.client_core)["p99_latency_ms"]

    def rounds(self, name, body, **settings):
        """What `body` finds out in each round, with a daemon whose store is empty but for alice's image."""
        for number in range(self.run.few_rounds):
            home = self.place / f"{name}-{number}"
            home.mkdir()
            with self.daemon(home, **settings) as daemon:
                daemon.wait_for(daemon.address)
                with resp.Client(daemon.address) as client:
                    client("LOGIN", "alice")
                    client("LOGIN", "carol")
                    client("PUT", "alice", "me", PICTURE)
                yield body(home, daemon)
                daemon.stop(signal.SIGKILL)
            shutil.rmtree(home)

    def row(self, id, what, found, *units, **goal):
        """A row of two tails and of further figures, in the order in which each round found them."""
        values = list(zip(*found))
        mine, other = Figure("disturbed", "ms", values[0]), Figure("quiet", "ms", values[1])
        further = [Figure(name, unit, value) for (name, unit), value in zip(units, values[2:])]
        return Row(id, what, "quiet p99", ratio(mine, other), more_is_better=False, figures=[mine, other, *further], **goal)

    def purge(self):
        def disturb(home, daemon):
            rows_writes.fill_user(daemon.address, "bob", self.run.scaled(100_000, 5_000))
            quiet, looks = self.p99(daemon), []

            def step(client, number):
                miss(client, number)
                if number % LOOK_EVERY == 0:
                    looks.append(client.info("store")["trash_bytes"] != "0")

            with resp.Client(daemon.address) as purge:
                purge.send("PURGE", "bob")
                with Beside(daemon.address, MISSES, step) as beside:
                    disturbed = self.p99(daemon)
                purge.reply()
            return disturbed, quiet, beside.pace, sum(looks) / max(len(looks), 1) * 100

        return self.row(
            "P11", f"p99 of a hit while 100,000 images are purged and {MISSES} misses/s are downloaded",
            self.rounds("purge", disturb), ("misses that were answered", "misses/s"),
            ("purged images were being deleted", "% of the time"), goal=3.0, note="client and server on a core each")

    def other(self, name, what, step, per_second=STEPS, **settings):
        def disturb(home, daemon):
            with resp.Client(daemon.address) as client:
                for picture in range(PICTURES):
                    revalidate(client, picture)
            quiet = self.p99(daemon)
            with Beside(daemon.address, per_second, step) as beside:
                disturbed = self.p99(daemon)
            return disturbed, quiet, beside.pace

        return self.row(
            f"P11 {name}", f"p99 of a hit while {what}", self.rounds(name, disturb, **settings),
            ("of these were done", "a second"))

    def start(self):
        """The sweep after a start counts what is stored."""
        def disturb(home, daemon):
            rows_writes.fill_user(daemon.address, "bob", self.run.scaled(100_000, 5_000))
            daemon.stop(signal.SIGTERM)
            with self.daemon(home) as again:
                again.wait_for(again.address)
                with resp.Client(again.address) as client:
                    client("GET", "alice", "me")
                looks = []
                with Beside(again.address, 10, lambda client, _: looks.append(client.info("store")["counted"] == "0")):
                    disturbed = self.p99(again)
                quiet = self.p99(again)
                again.stop(signal.SIGKILL)
            return disturbed, quiet, sum(looks) / max(len(looks), 1) * 100

        return self.row(
            "P11 start", "p99 of a hit right after a start with 100,000 images stored", self.rounds("start", disturb),
            ("images were being counted", "% of the time"))


def put(client, number):
    if client("PUT", "carol", f"{number:012}", PICTURE) != b"OK":
        raise processes.Failed("a PUT was not taken")


def miss(client, number):
    """Carol's images, when nobody has any."""
    if number % PICTURES == 0:
        client("PURGE", "carol")
    revalidate(client, number)


def revalidate(client, number):
    if not client("GET", "carol", f"{number % PICTURES:012}"):
        raise processes.Failed("the origin's image did not come")

"""P11: how long hits take while much else goes on."""

import os
import shutil
import signal
import time

from figures import Figure, Row, ratio
from rows import misses
from rows import scale
from rows import writes
from world import clients, disk, images, peers, processes, resp
from world.beside import Beside, stand_back

#: Connections that ask for hits: few enough that a hit waits for its turn and not for its like.
CONNECTIONS = 4
#: A second, one after another.
MISSES, PUTS, STALE_GETS = 200, 500, 500
#: After how many misses it is looked whether the store still deletes: ten times a second.
LOOK_EVERY = 20
PICTURE = images.image(8 << 10)
#: Those of the origin, which are carol's contacts'.
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
        yield tail.eviction()
        yield tail.revalidation()
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
            daemon.address, ["GET", "alice", "me"], self.requests, connections=CONNECTIONS, core=self.client_core
        )["p99_latency_ms"]

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

    def row(self, id, what, found, *figures, goal=None, note=""):
        """`found` has for each round both tails, disturbed and quiet, and a value for each of the further `figures`."""
        disturbed, quiet, *further = zip(*found)
        mine, other = Figure("disturbed", "ms", disturbed), Figure("quiet", "ms", quiet)
        more = [Figure(name, unit, values) for (name, unit), values in zip(figures, further)]
        return Row(id, f"p99 of a hit {what}", "quiet p99", ratio(mine, other), goal, False, [mine, other, *more], note)

    def purge(self):
        def disturb(home, daemon):
            writes.fill_user(daemon.address, "bob", self.run.scaled(100_000, 5_000))
            quiet, looks = self.p99(daemon), []

            def miss(client, number):
                if number % PICTURES == 0 and number:
                    client("PURGE", "carol")
                get_picture(client, number)
                if number % LOOK_EVERY == 0:
                    looks.append(client.info("store")["trash_bytes"] != "0")

            with resp.Client(daemon.address) as purge:
                purge.send("PURGE", "bob")
                with Beside(daemon.address, MISSES, miss) as beside:
                    disturbed = self.p99(daemon)
                purge.reply()
            return disturbed, quiet, beside.pace, share(looks)

        return self.row(
            "P11",
            f"while 100,000 images are purged and {MISSES} misses/s are downloaded",
            self.rounds("purge", disturb),
            ("misses that were answered", "misses/s"),
            ("purged images were being deleted", "% of the time"),
            goal=3.0,
            note="client and server on a core each",
        )

    def eviction(self):
        def put(client, number):
            if client("PUT", "carol", f"{number:012}", PICTURE) != b"OK":
                raise processes.Failed("a PUT was not taken")

        return self.row(
            "P11 eviction",
            f"while {PUTS} PUTs/s make a user whose quota is full lose as many images",
            self.rounds("eviction", self.beside_carol(put, PUTS, "store", "evicted_images"), quota="4MiB"),
            ("images evicted", "images/s"),
        )

    def revalidation(self):
        return self.row(
            "P11 revalidation",
            f"while {STALE_GETS} stale images/s are served and revalidated",
            self.rounds("revalidation", self.beside_carol(get_picture, STALE_GETS, "cache", "not_modified"), ttl="1s"),
            ("confirmed by the origin", "images/s"),
        )

    def beside_carol(self, step, per_second, section, field):
        """Disturbs by steps that a thousand images of carol's are there for, which are stale if they ever are. Of
        `field` in INFO
        it is told how much it grew each second."""

        def disturb(home, daemon):
            with resp.Client(daemon.address) as client:
                for number in range(PICTURES):
                    get_picture(client, number)
                misses.wait_until(client, "unwritten_images", 0, pause=0.01, section="cache")
                time.sleep(1.1)
                quiet = self.p99(daemon)
                begin, before = time.monotonic(), int(client.info(section)[field])
                with Beside(daemon.address, per_second, step):
                    disturbed = self.p99(daemon)
                grown = int(client.info(section)[field]) - before
            return disturbed, quiet, grown / (time.monotonic() - begin)

        return disturb

    def start(self):
        def disturb(home, daemon):
            writes.fill_user(daemon.address, "bob", self.run.scaled(100_000, 5_000))
            daemon.stop()
            with self.daemon(home) as again:
                again.wait_for(again.address)
                with resp.Client(again.address) as client:
                    if not client("GET", "alice", "me"):
                        raise processes.Failed("the image stored before the start is not held")
                    looks = []
                    with Beside(
                        again.address, 10, lambda client, _: looks.append(client.info("store")["counted"] == "0")
                    ):
                        disturbed = self.p99(again)
                    scale.wait_until_counted(client)
                quiet = self.p99(again)
                again.stop(signal.SIGKILL)
            return disturbed, quiet, share(looks)

        return self.row(
            "P11 start",
            "right after a start with 100,000 images stored",
            self.rounds("start", disturb),
            ("images were not all counted", "% of the time"),
        )


def get_picture(client, number):
    if not client("GET", "carol", f"{number % PICTURES:012}"):
        raise processes.Failed("the origin's image did not come")


def share(looks):
    """Per cent."""
    return sum(looks) / max(len(looks), 1) * 100

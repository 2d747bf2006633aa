"""P11: the latency of hits during background work."""

import os
import shutil
import signal
import time

from figures import Figure, Row, ratio
from rows import misses
from rows import scale
from rows import writes
from world import clients, disk, images, peers, processes, resp
from world.background import BackgroundLoad, set_idle_priority

#: Few enough that hits do not wait for each other.
CONNECTIONS = 4
#: Rates per second.
MISSES, PUTS, STALE_GETS = 200, 500, 500
#: The store's deletion is checked after this many misses, ten times per second.
CHECK_EVERY = 20
IMAGE = images.image(8 << 10)
#: The number of images at the origin, which are carol's profiles.
IMAGE_COUNT = 1_000


def rows(run):
    folder = run.home / "tail"
    image_folder = folder / "images"
    images.write_images(image_folder, IMAGE_COUNT, 8 << 10)
    with disk.file_system(folder, run.scaled(300_000, 20_000)) as place, peers.origin(folder, image_folder) as origin:
        for pid in origin.pids():
            set_idle_priority(pid)
        tail = Tail(run, place, origin)
        yield tail.purge()
        yield tail.purge_limit()
        yield tail.eviction()
        yield tail.revalidation()
        yield tail.start()


class Tail:
    """Measures hits of one image, quiet and under load, with a new daemon in each round."""

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
        """Yields the results of `body`, each with a new daemon that has only alice's image."""
        for number in range(self.run.few_rounds):
            home = self.place / f"{name}-{number}"
            home.mkdir()
            with self.daemon(home, **settings) as daemon:
                daemon.wait_for(daemon.address)
                with resp.Client(daemon.address) as client:
                    client("LOGIN", "alice")
                    client("LOGIN", "carol")
                    client("PUT", "alice", "me", IMAGE)
                yield body(home, daemon)
                daemon.stop(signal.SIGKILL)
            shutil.rmtree(home)

    def row(self, id, what, found, *figures, goal=None, note=""):
        """`found` has for each round the p99 under load, the quiet p99, and a value for each of the `figures`."""
        disturbed, quiet, *further = zip(*found)
        mine, other = Figure("under load", "ms", disturbed), Figure("quiet", "ms", quiet)
        more = [Figure(name, unit, values) for (name, unit), values in zip(figures, further)]
        return Row(id, f"p99 of a hit {what}", "quiet p99", ratio(mine, other), goal, False, [mine, other, *more], note)

    def purge(self):
        def disturb(home, daemon):
            writes.fill_user(daemon.address, "bob", self.run.scaled(100_000, 5_000))
            quiet, checks = self.p99(daemon), []

            def miss(client, number):
                if number % IMAGE_COUNT == 0 and number:
                    client("PURGE", "carol")
                get_image(client, number)
                if number % CHECK_EVERY == 0:
                    checks.append(client.info("store")["trash_bytes"] != "0")

            with resp.Client(daemon.address) as purge:
                purge.send("PURGE", "bob")
                with BackgroundLoad(daemon.address, MISSES, miss) as load:
                    disturbed = self.p99(daemon)
                purge.reply()
            return disturbed, quiet, load.pace, share(checks)

        return self.row(
            "P11",
            f"while 100,000 images are purged and {MISSES} misses/s are downloaded",
            self.rounds("purge", disturb),
            ("answered misses", "misses/s"),
            ("deletion in progress", "% of the time"),
            goal=3.0,
            note="client and server each have a core",
        )

    def purge_limit(self):
        """P11 with a C server, a C loop that deletes files as small as those of P11, and curl."""
        home = self.place / "limit"
        home.mkdir()
        delete = self.run.subject.compile("purgeloop", home, "purgeloop.c")
        # Enough for the whole measurement.
        count, small = self.run.scaled(200_000, 10_000), images.image(512)
        profiles = f"[{0:012}-{IMAGE_COUNT - 1:012}]"
        get_all = [processes.find("curl"), "--silent", "--show-error", "--fail", "--rate", f"{MISSES}/s"]
        get_all += [f"{self.origin.url}/{profiles}?[1-100]", "--output", home / "#1-#2.image"]

        def downloads():
            return list(home.glob("*.image"))

        def disturb(server):
            files = home / "files"
            for number in range(256):
                (files / f"{number:03}").mkdir(parents=True)
            for number in range(count):
                (files / f"{number % 256:03}" / f"{number:06}").write_bytes(small)
            os.sync()
            quiet = self.p99(server)
            with processes.Server("curl", get_all, home / "curl.log", self.server_core) as curl:
                while not downloads() and curl.process.poll() is None:
                    time.sleep(0.01)
                with processes.Server("purgeloop", [delete, files], home / "purgeloop.log", self.server_core) as loop:
                    begin, before = time.monotonic(), len(downloads())
                    disturbed = self.p99(server)
                    pace = (len(downloads()) - before) / (time.monotonic() - begin)
                    for load in (curl, loop):
                        if load.process.poll() is not None:
                            raise processes.Failed(f"{load.name} ended before the measurement: {load.log_tail()}")
            for path in downloads():
                path.unlink()
            deleted = count - sum(len(names) for _, _, names in os.walk(files))
            shutil.rmtree(files)
            return disturbed, quiet, pace, deleted / count * 100

        with self.run.subject.minimal_server(home, 1, len(IMAGE), ("GET", "alice", "me")) as server:
            os.sched_setaffinity(server.process.pid, {self.server_core})
            found = [disturb(server) for _ in range(self.run.few_rounds)]
        return self.row(
            "P11 limit",
            f"of a C server while a C loop deletes files and curl downloads {MISSES} images/s",
            found,
            ("downloads", "images/s"),
            ("deleted", f"% of {count:,} files"),
        )

    def eviction(self):
        def put(client, number):
            if client("PUT", "carol", f"{number:012}", IMAGE) != b"OK":
                raise processes.Failed("PUT failed")

        return self.row(
            "P11 eviction",
            f"while {PUTS} PUTs/s evict as many images of a user at its quota",
            self.rounds("eviction", self.load_on_carol(put, PUTS, "store", "evicted_images"), quota="4MiB"),
            ("images evicted", "images/s"),
        )

    def revalidation(self):
        return self.row(
            "P11 revalidation",
            f"while {STALE_GETS} stale images/s are served and revalidated",
            self.rounds("revalidation", self.load_on_carol(get_image, STALE_GETS, "cache", "not_modified"), ttl="1s"),
            ("revalidated images", "images/s"),
        )

    def load_on_carol(self, step, per_second, section, field):
        """Returns a load of `step`s on a thousand images of carol, which are stale if they have a short lifetime. Also
        measures how fast the `field` of INFO grows."""

        def disturb(home, daemon):
            with resp.Client(daemon.address) as client:
                for number in range(IMAGE_COUNT):
                    get_image(client, number)
                misses.wait_until(client, "unwritten_images", 0, pause=0.01, section="cache")
                time.sleep(1.1)
                quiet = self.p99(daemon)
                begin, before = time.monotonic(), int(client.info(section)[field])
                with BackgroundLoad(daemon.address, per_second, step):
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
                        raise processes.Failed("the image stored before the restart is missing")
                    checks = []
                    with BackgroundLoad(
                        again.address, 10, lambda client, _: checks.append(client.info("store")["store_counted"] == "0")
                    ):
                        disturbed = self.p99(again)
                    scale.wait_until_counted(client)
                quiet = self.p99(again)
                again.stop(signal.SIGKILL)
            return disturbed, quiet, share(checks)

        return self.row(
            "P11 start",
            "right after a start with 100,000 images stored",
            self.rounds("start", disturb),
            ("counting in progress", "% of the time"),
        )


def get_image(client, number):
    if not client("GET", "carol", f"{number % IMAGE_COUNT:012}"):
        raise processes.Failed("GET of the origin's image returned nil")


def share(checks):
    """Returns the share of true values, in percent."""
    return sum(checks) / max(len(checks), 1) * 100

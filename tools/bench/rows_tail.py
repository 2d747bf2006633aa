"""P11: how long hits take while much else goes on."""

import os
import shutil
import signal
import threading
import time

import clients
import disk
import images
import peers
import processes
import resp
import rows_writes
from figures import Figure, Row, ratio

#: Connections that ask for hits: few enough that a hit waits for its turn and not for its like.
CONNECTIONS = 4
MISSES = 200
#: After how many misses it is looked whether the store still deletes: ten times a second.
LOOK_EVERY = 20


def rows(run):
    folder = run.home / "tail"
    pictures = folder / "images"
    images.write_images(pictures, 1_000, 8 << 10)
    server_core, client_core = (0, 1) if (os.cpu_count() or 1) > 1 else (0, 0)
    quiet, disturbed, misses, deletion = [], [], [], []
    with disk.own(folder, run.scaled(300_000, 20_000)) as place, peers.origin(folder, pictures) as origin:
        for pid in origin.pids():
            stand_back(pid)
        for number in range(run.few_rounds):
            home = place / f"round-{number}"
            home.mkdir()
            with run.subject.start(home, origin=origin.url, core=server_core) as daemon:
                daemon.wait_for(daemon.address)
                rows_writes.fill_user(daemon.address, "bob", run.scaled(100_000, 5_000))
                with resp.Client(daemon.address) as client:
                    client("LOGIN", "alice")
                    client("LOGIN", "carol")
                    client("PUT", "alice", "me", images.image(8 << 10))
                requests = run.scaled(300_000, 20_000)
                quiet.append(p99(daemon, requests, client_core))
                with Disturbance(daemon.address) as disturbance:
                    disturbed.append(p99(daemon, requests, client_core))
                misses.append(disturbance.misses_per_second)
                deletion.append(disturbance.share_of_deletion * 100)
                daemon.stop(signal.SIGKILL)
            shutil.rmtree(home)
    mine, other = Figure("disturbed", "ms", disturbed), Figure("quiet", "ms", quiet)
    yield Row("P11", f"p99 of a hit while 100,000 images are purged and {MISSES} misses/s are downloaded", "quiet p99",
              ratio(mine, other), 3.0, False,
              figures=[mine, other, Figure("misses that were answered", "misses/s", misses),
                       Figure("purged images were being deleted", "% of the time", deletion)],
              note="client and server on a core each")


def p99(daemon, requests, core):
    return clients.redis_benchmark(
        daemon.address, ["GET", "alice", "me"], requests, connections=CONNECTIONS, core=core)["p99_latency_ms"]


def stand_back(pid=0):
    """Leaves a process, or the calling thread, only what processor time others leave: sched(7), SCHED_IDLE.

    Client and server have a core each, and the origin and who asks for misses have none: on a machine of two cores they would
    stand in the way of one or the other, and what is measured is what the daemon does to its own hits.
    """
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


class Disturbance:
    """Purges bob at once, and asks for images of carol's that nobody has, evenly spread over time, until it is left."""

    def __init__(self, address):
        self.address = address
        self.is_over = threading.Event()
        self.failure = None
        #: How many misses a second were answered: fewer than MISSES if they did not keep up.
        self.misses_per_second = 0.0
        #: In which part of the looks at it the store still had purged images to delete.
        self.share_of_deletion = 0.0
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        if self.failure:
            raise processes.Failed(f"while others were measured: {type(self.failure).__name__}: {self.failure}")

    def work(self):
        stand_back()
        try:
            with resp.Client(self.address) as misses, resp.Client(self.address) as purge:
                purge.send("PURGE", "bob")
                begin, sent, looks = time.monotonic(), 0, []
                while not self.is_over.wait(max(0, begin + sent / MISSES - time.monotonic())):
                    if sent % 1_000 == 0 and sent:
                        misses("PURGE", "carol")
                    if not misses("GET", "carol", f"{sent % 1_000:012}"):
                        raise processes.Failed("the origin's image did not come")
                    sent += 1
                    if sent % LOOK_EVERY == 0:
                        looks.append(misses.info("store")["trash_bytes"] != "0")
                self.misses_per_second = sent / (time.monotonic() - begin)
                self.share_of_deletion = sum(looks) / max(len(looks), 1)
                purge.reply()
        except Exception as error:
            # Whatever it is: who measures beside it has to learn that it was not disturbed.
            self.failure = error

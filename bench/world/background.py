"""Load in the background of a measurement."""

import os
import threading
import time

from world import processes, resp


def set_idle_priority(pid=0):
    """Gives a process, or the calling thread, only idle CPU time: sched(7), SCHED_IDLE.

    Client and server have one core each. On a machine with two cores, other processes would slow one of them, but the
    measurement is about the daemon's effect on its own hits.
    """
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


class BackgroundLoad:
    """Calls `step(client, number)` at a constant rate in a thread with idle priority until the context ends."""

    def __init__(self, address, per_second, step):
        self.address = address
        self.per_second = per_second
        self.step = step
        self.is_over = threading.Event()
        self.failure = None
        #: Steps per second that were executed; fewer than requested if they took too long.
        self.pace = 0.0
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        if self.failure:
            raise processes.Failed(f"background load: {type(self.failure).__name__}: {self.failure}")

    def work(self):
        try:
            set_idle_priority()
            with resp.Client(self.address) as client:
                begin, taken = time.monotonic(), 0
                while not self.is_over.wait(max(0, begin + taken / self.per_second - time.monotonic())):
                    self.step(client, taken)
                    taken += 1
                self.pace = taken / (time.monotonic() - begin)
        except Exception as error:
            # Passed to the main thread, because without the load the measurement is invalid.
            self.failure = error

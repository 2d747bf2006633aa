"""Something that goes on beside what is measured."""

import os
import threading
import time

from world import processes, resp


def stand_back(pid=0):
    """Leaves a process, or the calling thread, only what processor time others leave: sched(7), SCHED_IDLE.

    Client and server have a core each, and whoever else takes part has none: on a machine of two cores they would
    stand in the way of one or the other, and what is measured is what the daemon does to its own hits.
    """
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


class Beside:
    """Takes a step at an even pace, in a thread that stands back, until it is left: `step(client, number)`."""

    def __init__(self, address, per_second, step):
        self.address = address
        self.per_second = per_second
        self.step = step
        self.is_over = threading.Event()
        self.failure = None
        #: Steps a second that were taken: fewer than wanted if they did not keep up.
        self.pace = 0.0
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
        try:
            stand_back()
            with resp.Client(self.address) as client:
                begin, taken = time.monotonic(), 0
                while not self.is_over.wait(max(0, begin + taken / self.per_second - time.monotonic())):
                    self.step(client, taken)
                    taken += 1
                self.pace = taken / (time.monotonic() - begin)
        except Exception as error:
            # Whatever it is: who measures beside it has to learn that it was not disturbed.
            self.failure = error

"""The object that every scenario receives: the daemon, the people, and notes for the report."""

import json
import pathlib

from daemon import Daemon
from people import People

EXCHANGE = pathlib.Path("/var/lib/system-test")


class Machine:
    def __init__(self, rounds):
        self.daemon = Daemon()
        self.people = People()
        # Repetitions of the scenario that logs out while the daemon is down.
        self.rounds = rounds
        self.notes = []

    def note(self, words):
        """Adds a line to the report, such as a measured value."""
        self.notes.append(words)

    def begin(self):
        """Prepares a scenario: no user is logged in, and the service is as installed."""
        self.people.end_all()
        self.daemon.reset(self.people.all)
        self.notes = []

    def remember(self, **values):
        """Stores values for a scenario after the next boot."""
        (EXCHANGE / "memory.json").write_text(json.dumps(values), encoding="utf-8")

    def remembered(self):
        return json.loads((EXCHANGE / "memory.json").read_text(encoding="utf-8"))

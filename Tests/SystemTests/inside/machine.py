"""What a scenario is handed."""

import json
import pathlib

from daemon import Daemon
from people import People

EXCHANGE = pathlib.Path("/var/lib/system-test")


class Machine:
    def __init__(self, rounds):
        self.daemon = Daemon()
        self.people = People()
        # How often the log-outs with a broken daemon are repeated.
        self.rounds = rounds
        self.notes = []

    def note(self, words):
        """Something measured, for the report."""
        self.notes.append(words)

    def begin(self):
        """The state that every scenario begins in: nobody is logged in, and the service is as it was installed."""
        self.people.end_all()
        self.daemon.reset(self.people.everybody)
        self.notes = []

    def remember(self, **values):
        """For a scenario after the next boot."""
        (EXCHANGE / "memory.json").write_text(json.dumps(values), encoding="utf-8")

    def remembered(self):
        return json.loads((EXCHANGE / "memory.json").read_text(encoding="utf-8"))

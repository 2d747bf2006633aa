"""The list of recorded events that the checker reads; several threads append to it."""

import json
import threading
import time


class History:
    def __init__(self):
        self.events = []
        self.lock = threading.Lock()

    def now(self):
        return time.time()

    def add(self, op, start, end, **more):
        event = {"op": op, "start": start, "end": end, **more}
        with self.lock:
            self.events.append(event)
        return event

    def extend(self, events):
        with self.lock:
            self.events += events

    def save(self, path):
        with self.lock, open(path, "w") as file:
            for event in self.events:
                file.write(json.dumps(event) + "\n")

    def count(self, op, **fields):
        return sum(
            event["op"] == op and all(event.get(name) == value for name, value in fields.items())
            for event in self.events
        )

"""The report: one line for each scenario; for a failure also the reason and the last lines of the journal."""

import json


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.expected = []

    def add(self, record):
        if "plan" in record:
            self.expected = list(record["plan"])
            return
        name = record["name"]
        if name in self.expected:
            self.expected.remove(name)
        if record["reason"] is None:
            self.passed += 1
            print(f"passed  {name} ({record['seconds']:.1f} s)", flush=True)
            for note in record["notes"]:
                print(f"        {note}", flush=True)
        else:
            self.fail(name, record["reason"] + "\n" + record["journal"])

    def fail(self, name, reason):
        self.failed += 1
        print(f"FAILED  {name}", flush=True)
        for line in reason.rstrip().splitlines():
            print(f"        {line}", flush=True)

    def fail_missing(self):
        for name in self.expected:
            self.fail(name, "not run")
        self.expected = []

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)


class Lines:
    """Reads the records of a growing file, which may not exist yet."""

    def __init__(self, path):
        self.path = path
        self.offset = 0

    def new(self):
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                # An incomplete line is read by the next call.
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                yield json.loads(line)

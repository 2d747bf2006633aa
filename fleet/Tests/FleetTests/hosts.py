"""A host of the fleet: a daemon and its relay in their own network namespace."""

import datetime
import json
import os
import re
import signal
import subprocess

from harness import Client, Daemon
from servers import MASTER

STREAM = "thumbcached:fleet"
HEARTBEAT = 0.25  # seconds


class Host:
    def __init__(self, machine, home, programs, servers):
        self.machine, self.name, self.programs = machine, machine.name, programs
        self.home = home
        self.daemon = Daemon(programs / "thumbcached", home / "daemon")
        self.configuration = home / "relay.toml"
        self.configuration.write_text(relay_settings(self.name, home, self.daemon.path, servers))
        self.relay = None
        self.killed = set()
        self.relay_log = home / "relay.log"
        self.read = 0
        self.open_gap = None

    def start(self):
        self.start_daemon()
        self.start_relay()

    def start_daemon(self):
        if not self.daemon.is_running():
            self.killed.discard("the daemon")
            self.daemon.launch(self.machine.dying_wrapper)
            self.daemon.wait_until_serving()

    def start_relay(self):
        if self.relay is None or self.relay.poll() is not None:
            self.killed.discard("the relay")
            argv = [*self.machine.dying_wrapper, self.programs / "thumbcached-relay", "run", "--config"]
            with open(self.relay_log, "ab") as log:
                self.relay = subprocess.Popen(
                    [*argv, self.configuration], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={**os.environ, "SWIFT_BACKTRACE": "enable=no"},
                )  # fmt: skip

    def kill_daemon(self):
        """Sends SIGKILL."""
        self.killed.add("the daemon")
        self.daemon.kill()

    def freeze_daemon(self):
        if self.daemon.is_running():
            self.daemon.process.send_signal(signal.SIGSTOP)

    def thaw_daemon(self):
        if self.daemon.is_running():
            self.daemon.process.send_signal(signal.SIGCONT)

    def kill_relay(self):
        """Sends SIGKILL."""
        self.killed.add("the relay")
        if self.relay is not None and self.relay.poll() is None:
            self.relay.kill()
            self.relay.wait()

    def crashed_process(self):
        """Returns the process that ended without being killed by this test, or None."""
        if not self.daemon.is_running() and "the daemon" not in self.killed:
            return "the daemon"
        if self.relay.poll() is not None and "the relay" not in self.killed:
            return "the relay"
        return None

    def connect(self):
        return Client(self.daemon.path, timeout=10)

    def keys(self):
        """Returns the larger of two numbers: key files on disk, and session files on disk."""
        folders = [self.daemon.places["state"] / kind / str(os.geteuid()) for kind in ("keys", "sessions")]
        return max(len(list(folder.iterdir())) if folder.exists() else 0 for folder in folders)

    def new_gaps(self):
        """Returns events for the gaps logged by the relay since the last call. The end of an open gap is set later."""
        with open(self.relay_log, "rb") as log:
            log.seek(self.read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.read += len(whole)
        gaps = []
        for line in whole.decode(errors="replace").splitlines():
            found = re.match(r'time=(\S+) level=\S+ message="([^"]*)"', line)
            if not found:
                continue
            moment = datetime.datetime.fromisoformat(found[1].replace("Z", "+00:00")).timestamp()
            if found[2] == "logouts may have been missed":
                if self.open_gap is None:
                    self.open_gap = {"op": "gap", "host": self.name, "start": moment, "end": None}
                    gaps.append(self.open_gap)
            elif found[2] == "gap closed" and self.open_gap is not None:
                self.open_gap["end"] = moment
                self.open_gap = None
        return gaps

    def crashes(self):
        """Returns the log lines of traps and fatal errors."""
        words = ("Fatal error", "Crash", "Assertion")
        logs = [self.relay_log, self.daemon.log_file]
        return [
            line
            for log in logs
            for line in log.read_text(errors="replace").splitlines()
            if any(word in line for word in words)
        ]


def relay_settings(name, home, socket, servers):
    quoted = {key: json.dumps(str(value)) for key, value in {"n": name, "s": home / "relay", "d": socket}.items()}
    return (
        f'host = {quoted["n"]}\nstate = {quoted["s"]}\nsocket = {quoted["d"]}\n'
        f'heartbeat = "{int(HEARTBEAT * 1000)}ms"\n\n[redis]\nsentinels = {json.dumps(servers.addresses)}\n'
        f'master = "{MASTER}"\ntimeout = "1s"\n'
    )

"""The installed daemon: its units, its configuration, its journal, and what it keeps on disk."""

import json
import os
import pathlib
import shutil

from commands import attempt, property_of, run, systemctl
from resp import Closed, ask
from waiting import check, wait_until

UNIT = "thumbcached.service"
SOCKET = "thumbcached.socket"
# Starts the service where log-outs wait for it.
PATH = "thumbcached.path"
# What downloads for it.
FETCHER = "thumbcached-fetcher.service"
FETCHER_SOCKET = "thumbcached-fetcher.socket"
# What shows its figures over HTTP.
EXPORTER = "thumbcached-exporter.service"
# What makes pictures of other sizes.
RENDERER = "thumbcached-renderer.service"
RENDERER_SOCKET = "thumbcached-renderer.socket"
FETCHER_PATH = pathlib.Path("/run/thumbcached-fetcher.sock")
CONFIGURATION = pathlib.Path("/etc/thumbcached/thumbcached.toml")
# As the package brought it: kept over boots.
INSTALLED_CONFIGURATION = pathlib.Path("/var/lib/system-test/thumbcached.toml")
CACHE = pathlib.Path("/var/cache/thumbcached")
STATE = pathlib.Path("/var/lib/thumbcached")
RUNTIME = pathlib.Path("/run/thumbcached")
PENDING = pathlib.Path("/var/lib/thumbcached-pending")
DROP_INS = [pathlib.Path(f"/run/systemd/system/{unit}.d/50-system-test.conf") for unit in (UNIT, SOCKET, FETCHER)]
# What systemd says when a unit has stopped: systemd.journal-fields(7), sd-messages.h.
STOPPED = "9d1aaa27d60140bd96365438aad20286"
# syslog(3).
ERROR = 3


class Daemon:
    # MARK: State

    def pid(self):
        return int(property_of(UNIT, "MainPID"))

    def is_active(self):
        return property_of(UNIT, "ActiveState") == "active"

    def state(self, unit=UNIT):
        return property_of(unit, "ActiveState")

    def start(self):
        """The first call starts it, as everybody's does; returns when that was answered."""
        check(ask("PING") == "PONG", "PING is not answered with PONG")

    def restart(self):
        systemctl("reset-failed", UNIT, SOCKET)
        systemctl("restart", UNIT)

    def wait_for_another_than(self, pid):
        """Another process than this one serves."""
        wait_until("the service runs in another process", lambda: self.is_active() and self.pid() not in (0, pid))

    # MARK: Configuration

    def configure(self, text):
        CONFIGURATION.write_text(text, encoding="utf-8")

    def use(self, text):
        """Serves with this configuration from here on."""
        self.configure(text)
        self.restart()

    def drop_in(self, text, unit=UNIT):
        """Lines in addition to the installed unit's, for what is started from here on."""
        path = next(path for path in DROP_INS if unit in str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        systemctl("daemon-reload")

    def remove_drop_in(self, unit):
        """The installed unit alone, for what is started from here on."""
        next(path for path in DROP_INS if unit in str(path)).unlink()
        systemctl("daemon-reload")

    def reset(self, everybody):
        """As it was installed, with nobody logged in. What a scenario broke is mended; what it left unmended fails
        here."""
        attempt("systemctl", "unmask", "--runtime", UNIT, SOCKET)
        mended = False
        for path in DROP_INS:
            if path.exists():
                path.unlink()
                mended = True
        if mended:
            systemctl("daemon-reload")
        if not INSTALLED_CONFIGURATION.exists():
            shutil.copyfile(CONFIGURATION, INSTALLED_CONFIGURATION)
        installed = INSTALLED_CONFIGURATION.read_text(encoding="utf-8")
        if CONFIGURATION.read_text(encoding="utf-8") != installed:
            self.configure(installed)
            mended = True
        attempt("systemctl", "reset-failed")
        if mended:
            attempt("systemctl", "stop", UNIT, FETCHER)
        systemctl("start", FETCHER_SOCKET, SOCKET, PATH)
        try:
            self.start()
        except TimeoutError:
            # One that a scenario left stopped answers nobody; the next scenario has a new one.
            attempt("systemctl", "kill", "--signal=KILL", UNIT)
            self.start()
        for person in everybody:
            ask("LOGOUT", "*", "UID", person.uid)

    def forget_everything(self):
        """Removes the store: for scenarios that damage it."""
        attempt("systemctl", "stop", UNIT)
        for home in (CACHE, STATE, RUNTIME / "keys"):
            for child in home.glob("*"):
                shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()

    # MARK: Journal

    def now(self):
        """A place in the journal, from which journal() reads."""
        words = run("journalctl", "--quiet", "--lines=0", "--show-cursor").strip()
        return words.split("cursor: ", 1)[1]

    def entries(self, cursor, unit=None):
        """What the journal holds since then, of one unit or of all.

        journalctl is given no match: with one and a cursor, that of systemd 252 leaves out the first entry that
        matches.
        """
        fields = "--output-fields=MESSAGE,MESSAGE_ID,PRIORITY,UNIT,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER"
        lines = run("journalctl", "--quiet", "--output=json", fields, f"--after-cursor={cursor}").splitlines()
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if unit is None or unit in (entry.get("UNIT"), entry.get("_SYSTEMD_UNIT"))]

    def journal(self, cursor, unit=None):
        """The same as lines, with the time since the boot in seconds."""
        return [
            f"[{moment(entry):.3f}] {entry.get('SYSLOG_IDENTIFIER')}: {entry.get('MESSAGE')}"
            for entry in self.entries(cursor, unit)
        ]

    def messages(self, cursor, unit):
        """What the unit's programs wrote, as they wrote it."""
        return [str(entry.get("MESSAGE")) for entry in self.entries(cursor, unit)]

    def wait_for_journal(self, cursor, words, unit):
        """The journal of the unit says all of these words in one line."""

        def is_there():
            return any(all(word in line for word in words) for line in self.journal(cursor, unit))

        wait_until(f"the journal of {unit} says {' … '.join(words)}", is_there)

    def wait_for_error(self, cursor, words, unit):
        """The same, in a line that `journalctl --priority=err` shows."""

        def is_there():
            errors = [entry for entry in self.entries(cursor, unit) if int(entry["PRIORITY"]) <= ERROR]
            return any(all(word in str(entry.get("MESSAGE")) for word in words) for entry in errors)

        wait_until(f"the journal of {unit} has an error {' … '.join(words)}", is_there)

    def stopped_at(self, cursor, unit):
        """When systemd had stopped that unit, on time.monotonic()'s clock; None before that."""
        times = [
            moment(entry)
            for entry in self.entries(cursor)
            if entry.get("MESSAGE_ID") == STOPPED and entry.get("UNIT") == unit
        ]
        return times[-1] if times else None

    # MARK: What is kept

    def traces(self, uid):
        """Every file and directory that is a uid's: images, keys, log-ins. Empty when the uid has none."""
        homes = [home / str(uid) for home in (CACHE / "users", STATE / "keys", RUNTIME / "keys", STATE / "sessions")]
        return [str(path) for home in homes for path in (home, *children(home)) if os.path.lexists(path)]

    def keys(self, uid):
        """The log-ins of a uid: one key each."""
        return [str(path) for home in (STATE / "keys", RUNTIME / "keys") for path in children(home / str(uid))]

    def markers(self, uid=None):
        """Log-outs that wait for the daemon."""
        return sorted(path.name for path in PENDING.glob("*" if uid is None else f"{uid}.*"))

    def held(self, person, account="mail"):
        """How many images are held of an account, as that user sees it; None when it is not logged in."""
        what = f"it is known what is held of {person.name}"
        found = wait_until(what, lambda: self.count_held(person, f"{account}@{person.name}.example"))
        return None if found is NOBODY else found[b"images"]

    def count_held(self, person, account):
        """None while nobody can tell: after a start, images are counted in the background."""
        try:
            reply = ask("STAT", account, uid=person.uid)
        except Closed:
            # A stop may close a connection that it has accepted; whoever asks again waits in the socket's queue.
            return None
        if reply is None:
            return NOBODY
        found = dict(zip(reply[::2], reply[1::2], strict=True))
        return None if found[b"images"] is None else found


# For an account that is not logged in.
NOBODY = object()


def children(folder):
    """What lies in a folder, which may go while it is looked at, or not be there."""
    try:
        return [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def moment(entry):
    """On time.monotonic()'s clock."""
    return int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6

"""The installed daemon: its units, configuration, journal and files."""

import json
import os
import pathlib
import shutil

from commands import attempt, property_of, run, systemctl
from resp import Closed, request
from waiting import check, wait_until

UNIT = "thumbcached.service"
SOCKET = "thumbcached.socket"
# Starts the service when a pending-logout file exists.
PATH = "thumbcached.path"
FETCHER = "thumbcached-fetcher.service"
FETCHER_SOCKET = "thumbcached-fetcher.socket"
HTTP = "thumbcached-http.service"
RENDERER = "thumbcached-renderer.service"
RENDERER_SOCKET = "thumbcached-renderer.socket"
FETCHER_PATH = pathlib.Path("/run/thumbcached-fetcher.sock")
CONFIGURATION = pathlib.Path("/etc/thumbcached/thumbcached.toml")
# A copy of the configuration file as installed, kept across boots.
INSTALLED_CONFIGURATION = pathlib.Path("/var/lib/system-test/thumbcached.toml")
CACHE = pathlib.Path("/var/cache/thumbcached")
STATE = pathlib.Path("/var/lib/thumbcached")
RUNTIME = pathlib.Path("/run/thumbcached")
PENDING = pathlib.Path("/var/lib/thumbcached-pending")
DROP_INS = [pathlib.Path(f"/run/systemd/system/{unit}.d/50-system-test.conf") for unit in (UNIT, SOCKET, FETCHER)]
# Message ID of systemd for a unit that has stopped: systemd.journal-fields(7), sd-messages.h.
STOPPED = "9d1aaa27d60140bd96365438aad20286"
# Priority of syslog(3).
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
        """Starts the daemon by socket activation; returns when it has answered."""
        check(request("PING") == "PONG", "PING was not answered with PONG")

    def restart(self):
        systemctl("reset-failed", UNIT, SOCKET)
        systemctl("restart", UNIT)

    def wait_for_another_than(self, pid):
        """Waits until the service is active with another process ID."""
        wait_until("the service runs in another process", lambda: self.is_active() and self.pid() not in (0, pid))

    # MARK: Configuration

    def configure(self, text):
        CONFIGURATION.write_text(text, encoding="utf-8")

    def use(self, text):
        """Replaces the configuration and restarts the daemon."""
        self.configure(text)
        self.restart()

    def drop_in(self, text, unit=UNIT):
        """Adds lines to the installed unit; they apply from its next start."""
        path = next(path for path in DROP_INS if unit in str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        systemctl("daemon-reload")

    def remove_drop_in(self, unit):
        """Restores the installed unit; this applies from its next start."""
        next(path for path in DROP_INS if unit in str(path)).unlink()
        systemctl("daemon-reload")

    def reset(self, people):
        """Restores the installed configuration and units, starts the service, and logs out all people.

        Fails if a scenario left the service unable to start.
        """
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
            # A scenario left the process stopped by a signal; kill it so that systemd starts another.
            attempt("systemctl", "kill", "--signal=KILL", UNIT)
            self.start()
        for person in people:
            request("LOGOUT", "*", "UID", person.uid)

    def forget_everything(self):
        """Removes the store, for scenarios that damage it."""
        attempt("systemctl", "stop", UNIT)
        for home in (CACHE, STATE, RUNTIME / "keys"):
            for child in home.glob("*"):
                shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()

    # MARK: Journal

    def now(self):
        """Returns the current position in the journal, for the methods below."""
        words = run("journalctl", "--quiet", "--lines=0", "--show-cursor").strip()
        return words.split("cursor: ", 1)[1]

    def entries(self, cursor, unit=None):
        """Returns the journal entries after a cursor, of one unit or of all.

        Filters here: given a match and a cursor, journalctl of systemd 252 omits the first matching entry.
        """
        fields = "--output-fields=MESSAGE,MESSAGE_ID,PRIORITY,UNIT,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER"
        lines = run("journalctl", "--quiet", "--output=json", fields, f"--after-cursor={cursor}").splitlines()
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if unit is None or unit in (entry.get("UNIT"), entry.get("_SYSTEMD_UNIT"))]

    def journal(self, cursor, unit=None):
        """Returns the entries as lines, each with its time since boot in seconds."""
        return [
            f"[{moment(entry):.3f}] {entry.get('SYSLOG_IDENTIFIER')}: {entry.get('MESSAGE')}"
            for entry in self.entries(cursor, unit)
        ]

    def messages(self, cursor, unit):
        """Returns the messages that the unit's processes wrote."""
        return [str(entry.get("MESSAGE")) for entry in self.entries(cursor, unit)]

    def wait_for_journal(self, cursor, words, unit):
        """Waits for a journal line of the unit that contains all of these words."""

        def is_there():
            return any(all(word in line for word in words) for line in self.journal(cursor, unit))

        wait_until(f"the journal of {unit} says {' … '.join(words)}", is_there)

    def wait_for_error(self, cursor, words, unit):
        """Waits for a message with priority `err` or higher that contains all of these words."""

        def is_there():
            errors = [entry for entry in self.entries(cursor, unit) if int(entry["PRIORITY"]) <= ERROR]
            return any(all(word in str(entry.get("MESSAGE")) for word in words) for entry in errors)

        wait_until(f"the journal of {unit} has an error {' … '.join(words)}", is_there)

    def stopped_at(self, cursor, unit):
        """Returns when systemd last stopped the unit, as a time of time.monotonic(); None if it has not."""
        times = [
            moment(entry)
            for entry in self.entries(cursor)
            if entry.get("MESSAGE_ID") == STOPPED and entry.get("UNIT") == unit
        ]
        return times[-1] if times else None

    # MARK: Store

    def traces(self, uid):
        """Returns all files and directories of a uid: images, keys, logins."""
        homes = [home / str(uid) for home in (CACHE / "users", STATE / "keys", RUNTIME / "keys", STATE / "sessions")]
        return [str(path) for home in homes for path in (home, *children(home)) if os.path.lexists(path)]

    def keys(self, uid):
        """Returns the key files of a uid: one for each login."""
        return [str(path) for home in (STATE / "keys", RUNTIME / "keys") for path in children(home / str(uid))]

    def pending_files(self, uid=None):
        """Returns the names of the pending-logout files, of one uid or of all."""
        return sorted(path.name for path in PENDING.glob("*" if uid is None else f"{uid}.*"))

    def image_count(self, person, account="mail"):
        """Returns the number of images of an account, as STAT reports it; None if the account is not logged in."""
        what = f"the number of images of {person.name} is known"
        found = wait_until(what, lambda: self.query_image_count(person, f"{account}@{person.name}.example"))
        return None if found is NOT_LOGGED_IN else found[b"images"]

    def query_image_count(self, person, account):
        """Returns None while the number is unknown: after a start, images are counted in the background."""
        try:
            reply = request("STAT", account, uid=person.uid)
        except Closed:
            # A stopping daemon may close a connection that it has accepted; the caller retries.
            return None
        if reply is None:
            return NOT_LOGGED_IN
        found = dict(zip(reply[::2], reply[1::2], strict=True))
        return None if found[b"images"] is None else found


# Result of query_image_count for an account that is not logged in.
NOT_LOGGED_IN = object()


def children(folder):
    """Returns the paths in a directory; none if it does not exist."""
    try:
        return [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def moment(entry):
    """Returns the time of a journal entry on the clock of time.monotonic(), in seconds."""
    return int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6

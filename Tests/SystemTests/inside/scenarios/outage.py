"""Log-outs while the daemon is stopped, masked, or killed in the middle, again and again."""

import collections
import os
import pathlib
import random
import signal
import time

from commands import attempt, property_of, run, systemctl
from daemon import ERROR, PATH, PENDING, SOCKET, UNIT
from resp import Closed, ask, error_code
from waiting import check, wait_until

from scenarios.logout import hook, wait_until_away

# In seconds, about, from the start of the hook's program to the end of its work.
LOG_OUT_TAKES = 0.3
# So that a failure can be repeated.
SEED = 45


def log_outs_without_a_daemon(machine):
    """F46: log-outs while the daemon is stopped, masked, or killed in the middle: after the next start nothing of that
    uid is served or found on disk, and another user's images are"""
    bob = machine.people.bob
    other = machine.people.login(bob)
    chance = random.Random(SEED)
    results = collections.Counter()
    for number in range(machine.rounds):
        results[one_round(machine, number, chance)] += 1
        other.wait_for_hits(5)
    seen = other.seen
    check(not seen["misses"] and not seen["wrong"], f"the other user missed images: {seen}")
    check(machine.daemon.held(bob) == 8, "the other user is not logged in any more, or images are missing")
    counts = ", ".join(f"{result} {count}" for result, count in sorted(results.items()))
    machine.note(f"{machine.rounds} rounds: {counts}")


def one_round(machine, number, chance):
    """Returns what was done to the daemon, and what became of the log-out."""
    alice = machine.people.alice
    outage = OUTAGES[number % len(OUTAGES)]
    session = machine.people.login(alice, pictures=3)
    cursor = machine.daemon.now()
    outage(machine, session, chance)
    wait_until("the user manager has ended", lambda: machine.daemon.stopped_at(cursor, f"user@{alice.uid}.service"))
    result = f"{outage.__name__}: {wait_for_hook(alice)}"
    repair(machine)
    check_nothing_left(machine, alice, f"round {number}, {result}")
    wait_until("the marker is removed", lambda: not machine.daemon.markers(alice.uid))
    machine.people.applications.remove(session)
    return result


def stopped(machine, session, chance):
    """Neither service nor socket, and nothing that starts them: nothing answers."""
    systemctl("stop", PATH, UNIT, SOCKET)
    session.log_out()


def asleep(machine, session, chance):
    """The service is stopped, the socket is not: the hook's call starts it."""
    systemctl("stop", UNIT)
    session.log_out()


def masked(machine, session, chance):
    """An administrator forbade both."""
    run("systemctl", "mask", "--runtime", "--now", SOCKET, UNIT)
    session.log_out()


def killed(machine, session, chance):
    """Killed at some moment of the log-out, and once more at some moment after it was started again."""
    systemctl("stop", "--no-block", session.session.unit)
    wait_until("the log-out has begun", lambda: property_of(hook(session.person), "ActiveState") != "active")
    for _ in range(2):
        # Not to wait for anything: this is the moment, out of those in which a log-out does its steps.
        time.sleep(chance.uniform(0, LOG_OUT_TAKES))
        kill(machine)
        wait_until("the service runs again", lambda: machine.daemon.pid() != 0)


def kill(machine):
    pid = machine.daemon.pid()
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


OUTAGES = [stopped, killed, masked, asleep, killed]


def wait_for_hook(person):
    """What became of the hook: "done", or "marker" when it left one."""
    wait_until("the hook has ended", lambda: property_of(hook(person), "ActiveState") in ("inactive", "failed"))
    wait_until("the user is away", person.is_away)
    return "marker" if attempt("systemctl", "--quiet", "is-failed", hook(person)).returncode == 0 else "done"


def repair(machine):
    attempt("systemctl", "unmask", "--runtime", SOCKET, UNIT)
    attempt("systemctl", "reset-failed")
    systemctl("start", SOCKET, PATH)


def check_nothing_left(machine, person, where):
    """The first call starts the daemon. When it is answered, nothing of the person is served, and no key is there."""
    code = None
    while code is None:
        try:
            code = error_code("GET", f"mail@{person.name}.example", "contact-0", uid=person.uid) or "an image"
        except Closed:
            # The kill came between: the next one serves.
            continue
    check(code == "NOLOGIN", f"{where}: a GET is answered with {code}")
    check(not machine.daemon.keys(person.uid), f"{where}: there are keys {machine.daemon.keys(person.uid)}")
    check(ask("USERS", uid=person.uid) == [], f"{where}: there are users")
    wait_until(f"{where}: nothing is on disk", lambda: not machine.daemon.traces(person.uid))


def alone_with_a_sleeping_daemon(machine):
    """F46: a log-out that finds the service stopped starts it and is done, with nobody else about, and with no marker
    left"""
    alice = machine.people.alice
    session = machine.people.login(alice)
    # Held first: by asking again it would start the service itself.
    session.signal(signal.SIGSTOP)
    systemctl("stop", UNIT)
    cursor = machine.daemon.now()
    session.signal(signal.SIGKILL)
    session.log_out()
    late = wait_until_away(machine, alice, cursor)
    machine.note(f"nothing was left {late * 1000:.0f} ms after user@{alice.uid}.service had stopped")
    wait_until("the log-out has started the service", machine.daemon.is_active)
    check(wait_for_hook(alice) == "done", "the log-out left a marker although the service could start")


def alone_with_a_crash(machine):
    """F46: a log-out that comes just when the daemon has crashed waits for its next start, and is done, with no marker
    left"""
    alice = machine.people.alice
    session = machine.people.login(alice)
    session.signal(signal.SIGSTOP)
    cursor = machine.daemon.now()
    session.signal(signal.SIGKILL)
    kill(machine)
    session.log_out()
    wait_until_away(machine, alice, cursor)
    check(wait_for_hook(alice) == "done", "the log-out left a marker although the service was started again")


def left_by_somebody_else(machine):
    """F46: a marker that lies there while the daemon is away has it started, and is honoured, without a call"""
    alice = machine.people.alice
    ask("LOGIN", "mail@alice.example", uid=alice.uid)
    systemctl("stop", PATH, UNIT)
    (PENDING / f"{alice.uid}.{'a' * 32}").touch()
    (PENDING / "notes.txt").touch()
    try:
        systemctl("start", PATH)
        wait_until("the marker is honoured", lambda: not machine.daemon.markers(alice.uid))
        check(not machine.daemon.keys(alice.uid), f"there are keys {machine.daemon.keys(alice.uid)}")
        # What is no marker starts nothing.
        wait_until("the service is active", machine.daemon.is_active)
        systemctl("stop", UNIT)
        wait_until("the path waits", lambda: property_of(PATH, "SubState") == "waiting")
        check(machine.daemon.state() == "inactive", f"the service is {machine.daemon.state()}")
    finally:
        (PENDING / "notes.txt").unlink()


def without_a_place_to_count(machine):
    """F45: where pam-session cannot count sessions it logs out all the same, and the system log says so"""
    alice = machine.people.alice
    ask("LOGIN", "mail@alice.example", uid=alice.uid)
    SESSIONS.write_text("in the way")
    try:
        for kind in ("open_session", "close_session"):
            cursor = machine.daemon.now()
            words = ["env", f"PAM_USER={alice.name}", f"PAM_TYPE={kind}", "/usr/lib/thumbcached/pam-session"]
            ended = attempt(*words)
            said = f"{kind}: status {ended.returncode}: {ended.stderr}"
            check((ended.returncode == 0) == (kind == "close_session"), said)
            wait_until(f"the system log says what hinders {kind}", lambda cursor=cursor: complaints(machine, cursor))
    finally:
        SESSIONS.unlink()
    check(not machine.daemon.traces(alice.uid), f"there is {machine.daemon.traces(alice.uid)}")


SESSIONS = pathlib.Path("/run/thumbcached-sessions")


def complaints(machine, cursor):
    return [
        entry
        for entry in machine.daemon.entries(cursor)
        if entry.get("SYSLOG_IDENTIFIER") == "thumbcached-session"
        and int(entry["PRIORITY"]) <= ERROR
        and str(SESSIONS) in entry["MESSAGE"]
    ]


SCENARIOS = [
    without_a_place_to_count,
    alone_with_a_sleeping_daemon,
    alone_with_a_crash,
    left_by_somebody_else,
    log_outs_without_a_daemon,
]

"""Logouts while the daemon is stopped, masked, or killed, repeated many times."""

import collections
import os
import pathlib
import random
import signal
import time

from commands import attempt, property_of, run, systemctl
from daemon import ERROR, PATH, PENDING, SOCKET, UNIT
from resp import Closed, error_code, request
from waiting import check, wait_until

from scenarios.logout import hook, wait_until_no_trace

# Typical seconds from the start of the hook's program to its end.
LOGOUT_DURATION = 0.3
# A constant, so that a failure can be reproduced.
SEED = 45


def logouts_without_a_daemon(machine):
    """F46: after logouts with a stopped, masked or killed daemon, the next start serves and stores nothing of that uid,
    and another user's images are kept"""
    bob = machine.people.bob
    other = machine.people.login(bob)
    chance = random.Random(SEED)
    results = collections.Counter()
    for number in range(machine.rounds):
        results[one_round(machine, number, chance)] += 1
        other.wait_for_hits(5)
    seen = other.seen
    check(not seen["misses"] and not seen["wrong"], f"the other user's images are missing: {seen}")
    check(machine.daemon.image_count(bob) == 8, "the other user is logged out, or images are missing")
    counts = ", ".join(f"{result} {count}" for result, count in sorted(results.items()))
    machine.note(f"{machine.rounds} rounds: {counts}")


def one_round(machine, number, chance):
    """Runs one logout during an outage. Returns the outage and the result of the hook."""
    alice = machine.people.alice
    outage = OUTAGES[number % len(OUTAGES)]
    session = machine.people.login(alice, images=3)
    cursor = machine.daemon.now()
    outage(machine, session, chance)
    wait_until("the user manager has ended", lambda: machine.daemon.stopped_at(cursor, f"user@{alice.uid}.service"))
    result = f"{outage.__name__}: {wait_for_hook(alice)}"
    repair(machine)
    check_nothing_left(machine, alice, f"round {number}, {result}")
    wait_until("the pending-logout file is removed", lambda: not machine.daemon.pending_files(alice.uid))
    machine.people.applications.remove(session)
    return result


def all_stopped(machine, session, chance):
    """Stops the service, the socket and the path unit; the hook cannot reach the daemon."""
    systemctl("stop", PATH, UNIT, SOCKET)
    session.log_out()


def service_stopped(machine, session, chance):
    """Stops the service only; the hook's connection starts it."""
    systemctl("stop", UNIT)
    session.log_out()


def masked(machine, session, chance):
    """Masks the service and the socket."""
    run("systemctl", "mask", "--runtime", "--now", SOCKET, UNIT)
    session.log_out()


def killed(machine, session, chance):
    """Kills the daemon at a random moment of the logout, and again at a random moment after its restart."""
    systemctl("stop", "--no-block", session.session.unit)
    wait_until("the logout has begun", lambda: property_of(hook(session.person), "ActiveState") != "active")
    for _ in range(2):
        # The random delay selects the step of the logout at which the daemon is killed.
        time.sleep(chance.uniform(0, LOGOUT_DURATION))
        kill(machine)
        wait_until("the service runs again", lambda: machine.daemon.pid() != 0)


def kill(machine):
    pid = machine.daemon.pid()
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


OUTAGES = [all_stopped, killed, masked, service_stopped, killed]


def wait_for_hook(person):
    """Returns the result of the hook: "done", or "pending" if it left a pending-logout file."""
    wait_until("the hook has ended", lambda: property_of(hook(person), "ActiveState") in ("inactive", "failed"))
    wait_until("the user's slice is inactive", person.is_inactive)
    return "pending" if attempt("systemctl", "--quiet", "is-failed", hook(person)).returncode == 0 else "done"


def repair(machine):
    attempt("systemctl", "unmask", "--runtime", SOCKET, UNIT)
    attempt("systemctl", "reset-failed")
    systemctl("start", SOCKET, PATH)


def check_nothing_left(machine, person, where):
    """Starts the daemon by a request, then checks that the account is logged out and that keys and files are gone."""
    code = None
    while code is None:
        try:
            code = error_code("GET", f"mail@{person.name}.example", "contact-0", uid=person.uid) or "an image"
        except Closed:
            # The daemon was killed during the request; the next request starts it again.
            continue
    check(code == "NOLOGIN", f"{where}: a GET was answered with {code}")
    check(not machine.daemon.keys(person.uid), f"{where}: keys remain: {machine.daemon.keys(person.uid)}")
    check(request("USERS", uid=person.uid) == [], f"{where}: USERS lists accounts")
    wait_until(f"{where}: no file remains", lambda: not machine.daemon.traces(person.uid))


def logout_starts_a_stopped_daemon(machine):
    """F46: a logout starts the stopped service and succeeds, without a pending-logout file"""
    alice = machine.people.alice
    session = machine.people.login(alice)
    # Stopped first, because its requests would start the service.
    session.signal(signal.SIGSTOP)
    systemctl("stop", UNIT)
    cursor = machine.daemon.now()
    session.signal(signal.SIGKILL)
    session.log_out()
    late = wait_until_no_trace(machine, alice, cursor)
    machine.note(f"all files were deleted {late * 1000:.0f} ms after user@{alice.uid}.service had stopped")
    wait_until("the logout has started the service", machine.daemon.is_active)
    check(wait_for_hook(alice) == "done", "the logout left a pending-logout file although the service could start")


def logout_during_a_crash(machine):
    """F46: a logout during a crash waits for the next start and succeeds, without a pending-logout file"""
    alice = machine.people.alice
    session = machine.people.login(alice)
    session.signal(signal.SIGSTOP)
    cursor = machine.daemon.now()
    session.signal(signal.SIGKILL)
    kill(machine)
    session.log_out()
    wait_until_no_trace(machine, alice, cursor)
    check(wait_for_hook(alice) == "done", "the logout left a pending-logout file although the daemon restarted")


def pending_file_starts_the_daemon(machine):
    """F46: a pending-logout file starts a stopped daemon, which processes the file without a request"""
    alice = machine.people.alice
    request("LOGIN", "mail@alice.example", uid=alice.uid)
    systemctl("stop", PATH, UNIT)
    (PENDING / f"{alice.uid}.{'a' * 32}").touch()
    (PENDING / "notes.txt").touch()
    try:
        systemctl("start", PATH)
        wait_until("the pending-logout file is processed", lambda: not machine.daemon.pending_files(alice.uid))
        check(not machine.daemon.keys(alice.uid), f"keys remain: {machine.daemon.keys(alice.uid)}")
        # Other files in the directory start nothing.
        wait_until("the service is active", machine.daemon.is_active)
        systemctl("stop", UNIT)
        wait_until("the path waits", lambda: property_of(PATH, "SubState") == "waiting")
        check(machine.daemon.state() == "inactive", f"the service is {machine.daemon.state()}")
    finally:
        (PENDING / "notes.txt").unlink()


def session_counter_not_writable(machine):
    """F45: if pam-session cannot count sessions, it logs the user out and writes an error to the system log"""
    alice = machine.people.alice
    request("LOGIN", "mail@alice.example", uid=alice.uid)
    SESSIONS.write_text("not a directory")
    try:
        for kind in ("open_session", "close_session"):
            cursor = machine.daemon.now()
            words = ["env", f"PAM_USER={alice.name}", f"PAM_TYPE={kind}", "/usr/lib/thumbcached/pam-session"]
            ended = attempt(*words)
            said = f"{kind}: status {ended.returncode}: {ended.stderr}"
            check((ended.returncode == 0) == (kind == "close_session"), said)
            wait_until(f"the system log has an error for {kind}", lambda cursor=cursor: complaints(machine, cursor))
    finally:
        SESSIONS.unlink()
    check(not machine.daemon.traces(alice.uid), f"files remain: {machine.daemon.traces(alice.uid)}")


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
    session_counter_not_writable,
    logout_starts_a_stopped_daemon,
    logout_during_a_crash,
    pending_file_starts_the_daemon,
    logouts_without_a_daemon,
]

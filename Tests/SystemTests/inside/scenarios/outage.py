"""Log-outs while the daemon is stopped, masked, or killed in the middle, again and again."""

import os
import random
import signal

from commands import attempt, property_of, run, systemctl
from daemon import SOCKET, UNIT
from resp import Closed, ask, error_code
from scenarios.logout import hook, wait_until_away
from waiting import check, wait_until

# So that a failure can be repeated.
SEED = 45


def log_outs_without_a_daemon(machine):
    """F46: log-outs while the daemon is stopped, masked, or killed in the middle: after the next start nothing of that uid is
    served or found on disk, and another user's images are"""
    alice, bob = machine.people.alice, machine.people.bob
    other = machine.people.login(bob)
    chance = random.Random(SEED)
    counts = {}
    for number in range(machine.rounds):
        outage = OUTAGES[number % len(OUTAGES)]
        session = machine.people.login(alice, pictures=3)
        cursor = machine.daemon.now()
        result = outage(machine, session, chance)
        wait_until("the user manager has ended", lambda: machine.daemon.stopped_at(cursor, f"user@{alice.uid}.service"))
        result = wait_for_hook(alice)
        counts[f"{outage.__name__} {result}"] = counts.get(f"{outage.__name__} {result}", 0) + 1
        repair(machine)
        check_nothing_left(machine, alice, f"round {number}, {outage.__name__}, hook {result}")
        if result != "done":
            wait_until("the marker is removed", lambda: not machine.daemon.markers(alice.uid))
        other.wait_for_hits(5)
        machine.people.applications.remove(session)
    seen = other.seen
    check(not seen["misses"] and not seen["wrong"], f"the other user missed images: {seen}")
    check(machine.daemon.held(bob) == 8, "the other user is not logged in any more, or images are missing")
    machine.note(f"{machine.rounds} rounds: " + ", ".join(f"{words}: {count}" for words, count in sorted(counts.items())))


def stopped(machine, session, chance):
    """Neither service nor socket: nothing answers."""
    systemctl("stop", UNIT, SOCKET)
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
    """Killed at some moment of the log-out, and once more when it has started again."""
    systemctl("stop", "--no-block", session.session.unit)
    for _ in range(2):
        # Up to the time that a log-out takes: spent in looking at whether it has begun.
        for _ in range(chance.randrange(60)):
            if property_of(hook(session.person), "ActiveState") != "active":
                break
        kill(machine)


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
    systemctl("start", SOCKET)


def check_nothing_left(machine, person, where):
    """The first call starts the daemon. When it is answered, nothing of the person may be served, nor any key be there."""
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
    """F46: a log-out that finds the service stopped starts it and is done, with nobody else about, and with no marker left"""
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
    check(machine.daemon.is_active() or machine.daemon.state() == "activating", "the log-out did not start the service")
    check(wait_for_hook(alice) == "done", "the log-out left a marker although the service could start")


def alone_with_a_crash(machine):
    """F46: a log-out that comes just when the daemon has crashed waits for its next start, and is done, with no marker left"""
    alice = machine.people.alice
    session = machine.people.login(alice)
    session.signal(signal.SIGSTOP)
    cursor = machine.daemon.now()
    session.signal(signal.SIGKILL)
    kill(machine)
    session.log_out()
    wait_until_away(machine, alice, cursor)
    check(wait_for_hook(alice) == "done", "the log-out left a marker although the service was started again")


SCENARIOS = [alone_with_a_sleeping_daemon, alone_with_a_crash, log_outs_without_a_daemon]

"""A daemon that lives but does not serve."""

import os
import pathlib
import signal
import subprocess

from commands import property_of, run
from daemon import UNIT
from waiting import check, wait_until

HOLD = "/opt/system-test/hold_thread.py"


def stuck_loop(machine):
    """F48: when the event loop's thread stands still, the watchdog has it started again, and users stay logged in"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    limit = int(property_of(UNIT, "WatchdogUSec").removesuffix("s").replace("min", "") or 0)
    check(limit > 0, f"{UNIT} has no watchdog")
    cursor = machine.daemon.now()
    holder = subprocess.Popen(["/usr/bin/python3", "-B", HOLD, str(thread_of(pid, "sockets"))], stdout=subprocess.PIPE)
    try:
        check(holder.stdout.readline() == b"held\n", "the thread could not be held")
        machine.daemon.wait_for_another_than(pid)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    machine.daemon.wait_for_journal(cursor, ["atchdog"], UNIT)
    check(property_of(UNIT, "NRestarts") != "0", "the service was not started again by systemd")
    application.wait_for_hits()
    application.check_well(closed=None)
    check(machine.daemon.held(alice) == 8, "after the restart alice is not logged in, or images are missing")


def stuck_process(machine):
    """F48: a daemon that is stopped as a whole (SIGSTOP) is started again as well"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    os.kill(pid, signal.SIGSTOP)
    machine.daemon.wait_for_another_than(pid)
    application.wait_for_hits()
    application.check_well(closed=None)
    check(machine.daemon.held(alice) == 8, "after the restart alice is not logged in, or images are missing")


def healthy(machine):
    """F48: a daemon that serves, or that has nothing to do, is left alone by the watchdog for twice its time"""
    pid = machine.daemon.pid()
    first = watchdog_time()
    wait_until("the watchdog has been fed many times", lambda: watchdog_time() - first > 20_000_000)
    check(machine.daemon.pid() == pid, "the process is another")


def watchdog_time():
    """When the watchdog was fed last, in microseconds."""
    return int(property_of(UNIT, "WatchdogTimestampMonotonic"))


def thread_of(pid, name):
    """The thread whose name begins so: the daemon names its event loops."""
    found = [
        int(task.name)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        if (task / "comm").read_text().startswith(name)
    ]
    names = run("sh", "-c", f"cat /proc/{pid}/task/*/comm").split()
    check(len(found) == 1, f"there is not one thread {name}*, among {names}")
    return found[0]


SCENARIOS = [stuck_loop, stuck_process, healthy]

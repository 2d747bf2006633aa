"""The watchdog restarts a daemon that runs but does not respond."""

import os
import pathlib
import signal
import subprocess

from commands import property_of, run
from daemon import UNIT
from waiting import check, wait_until

HOLD = "/opt/system-test/hold_thread.py"


def stuck_loop(machine):
    """F48: the watchdog restarts the daemon when the event loop's thread is stuck; users stay logged in"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    limit = int(property_of(UNIT, "WatchdogUSec").removesuffix("s").replace("min", "") or 0)
    check(limit > 0, f"{UNIT} has no watchdog timeout")
    cursor = machine.daemon.now()
    holder = subprocess.Popen(["/usr/bin/python3", "-B", HOLD, str(thread_of(pid, "event loop"))], stdout=subprocess.PIPE)
    try:
        check(holder.stdout.readline() == b"held\n", "the thread could not be stopped")
        machine.daemon.wait_for_another_than(pid)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    machine.daemon.wait_for_journal(cursor, ["atchdog"], UNIT)
    check(property_of(UNIT, "NRestarts") != "0", "systemd did not restart the service")
    application.wait_for_hits()
    application.check_no_failures(closed=None)
    check(machine.daemon.image_count(alice) == 8, "alice is logged out after the restart, or images are missing")


def stuck_process(machine):
    """F48: the watchdog restarts a daemon that is stopped by SIGSTOP"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    os.kill(pid, signal.SIGSTOP)
    machine.daemon.wait_for_another_than(pid)
    application.wait_for_hits()
    application.check_no_failures(closed=None)
    check(machine.daemon.image_count(alice) == 8, "alice is logged out after the restart, or images are missing")


def healthy(machine):
    """F48: the watchdog does not restart an idle daemon within twice its timeout"""
    pid = machine.daemon.pid()
    first = watchdog_time()
    wait_until("20 s of watchdog notifications have passed", lambda: watchdog_time() - first > 20_000_000)
    check(machine.daemon.pid() == pid, "the daemon was restarted")


def watchdog_time():
    """Returns when the last watchdog notification was received, in microseconds."""
    return int(property_of(UNIT, "WatchdogTimestampMonotonic"))


def thread_of(pid, name):
    """Returns the id of the thread whose name begins with `name`; the daemon names its event loops."""
    found = [
        int(task.name)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        if (task / "comm").read_text().startswith(name)
    ]
    names = run("sh", "-c", f"cat /proc/{pid}/task/*/comm").split()
    check(len(found) == 1, f"expected one thread {name}*, found {len(found)} among {names}")
    return found[0]


SCENARIOS = [stuck_loop, stuck_process, healthy]

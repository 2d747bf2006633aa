"""Descriptors and memory run out."""

import os
import pathlib
import resource

from commands import property_of
from daemon import UNIT
from pictures import picture
from resp import Client, Closed, Refused, ask
from waiting import Failed, check, wait_until

MEMORY_CGROUP = pathlib.Path("/opt/memory-cgroup")
# The installed unit's MemoryMax= is far above this; the daemon itself needs some 30 MiB.
MEMORY = 96 << 20
# What spinning would cost, of one processor.
BUSY = 0.5


def no_descriptors(machine):
    """F15: without descriptors accepting pauses and does not spin, open connections are served, and it recovers by itself"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # A few more than are open now: so there soon is none.
    room = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 8
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (room, limits[1]))
    waiting = []
    try:
        for _ in range(64):
            client = Client(alice.uid)
            client.send("PING")
            waiting.append(client)
        before, began = processor_time(pid), application.seen["hits"]
        wait_until("open connections are served", lambda: application.seen["hits"] >= began + 300)
        spent = processor_time(pid) - before
        application.check_well(closed=0)
        machine.note(f"{spent:.2f} s of processor time for 300 hits without descriptors")
        idle_share(machine, pid, application)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    for client in waiting:
        check(client.receive() == "PONG", "a call that waited for a descriptor is not answered")
        client.close()
    check(machine.daemon.pid() == pid, "the daemon was started again")
    check(ask("PING") == "PONG", "a new call is not answered")


def idle_share(machine, pid, application):
    """With nobody asking anything, how busy the daemon is while calls wait for descriptors."""
    application.stop()
    began = os.times().elapsed
    before = processor_time(pid)
    wait_until("two seconds have passed", lambda: os.times().elapsed - began > 2, limit=60)
    share = (processor_time(pid) - before) / (os.times().elapsed - began)
    machine.note(f"{share:.0%} of a processor while calls wait for descriptors")
    check(share < BUSY, f"the daemon spins: {share:.0%} of a processor")


def processor_time(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def little_memory(machine):
    """F16: with little memory the daemon stays within it, or is ended and started again; log-ins and images outlive that"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    limit_memory(machine, pid)
    pid = machine.daemon.pid()
    # More in replies that nobody reads than there is memory, from connections that each stay within their limits.
    ask("LOGIN", "big", uid=alice.uid)
    image = picture("big", size=4 << 20)
    greedy = []
    try:
        ask("PUT", "big", "contact-0", image, uid=alice.uid)
        for _ in range(40):
            client = Client(alice.uid)
            greedy.append(client)
            for _ in range(4):
                client.send("GET", "big", "contact-0")
    except (Closed, Refused, OSError) as error:
        machine.note(f"while memory ran out, a call ended so: {error}")
    for client in greedy:
        client.close()
    wait_until("somebody serves", lambda: serves(machine))
    survived = machine.daemon.pid() == pid
    machine.note("it stayed within its memory" if survived else "it was ended by the kernel, and started again by systemd")
    application.wait_for_hits()
    application.check_well(closed=None)
    check(machine.daemon.held(alice) == 8, "alice is not logged in any more, or images are missing")


def limit_memory(machine, pid):
    """By the control group: of version 1 where the outside made one, else by the unit's own MemoryMax=."""
    if (MEMORY_CGROUP / "memory.limit_in_bytes").exists():
        (MEMORY_CGROUP / "memory.limit_in_bytes").write_text(str(MEMORY))
        (MEMORY_CGROUP / "cgroup.procs").write_text(str(pid))
        return
    machine.daemon.drop_in(f"[Service]\nMemoryMax={MEMORY}\n")
    machine.daemon.restart()
    applied = property_of(UNIT, "MemoryMax")
    if applied != str(MEMORY):
        raise Failed(f"MemoryMax= is not applied here: it is {applied}")


def serves(machine):
    try:
        return ask("PING") == "PONG" and machine.daemon.is_active()
    except (Closed, Refused):
        return False


SCENARIOS = [no_descriptors, little_memory]

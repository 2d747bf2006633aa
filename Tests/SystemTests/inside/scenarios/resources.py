"""Descriptors and memory run out."""

import os
import pathlib

from commands import property_of, run
from daemon import UNIT
from resp import Client, Closed, Refused, ask
from waiting import Failed, check, wait_until

MEMORY_CGROUP = pathlib.Path("/opt/memory-cgroup")
# The installed unit's MemoryMax= is far above this; the daemon itself needs some 30 MiB.
MEMORY = 96 << 20
# Of an image that is being put: below limits.image.
UPLOAD = 4 << 20
UPLOADS = 60
# What spinning would cost, of one processor.
BUSY = 0.5


def no_descriptors(machine):
    """F15: without descriptors accepting pauses and does not spin, open connections are served, and it recovers by
    itself"""
    alice = machine.people.alice
    # What is put needs a descriptor, and is answered with an error when there is none.
    application = machine.people.login(alice, get_only=True)
    pid = machine.daemon.pid()
    before_all = descriptor_limit(pid)
    # A few more than are open now: so there soon is none.
    room = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 8
    limit_descriptors(pid, room)
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
        limit_descriptors(pid, before_all)
    for client in waiting:
        check(client.receive() == "PONG", "a call that waited for a descriptor is not answered")
        client.close()
    check(machine.daemon.pid() == pid, "the daemon was started again")
    check(ask("PING") == "PONG", "a new call is not answered")


def descriptor_limit(pid):
    """The soft limit, which the daemon has set itself."""
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
    return int(next(line for line in limits if line.startswith("Max open files")).split()[3])


def limit_descriptors(pid, count):
    # As the daemon's own user, who may: not every machine lends root the right to set others' limits.
    own = ["setpriv", "--reuid=thumbcached", "--regid=thumbcached", "--clear-groups"]
    run(*own, "prlimit", "--pid", str(pid), f"--nofile={count}:")


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
    """F16: with little memory the daemon stays within it, or is ended and started again; log-ins and images outlive
    that"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    limit_memory(machine, pid)
    pid = machine.daemon.pid()
    # More in frames that never end than there is memory, from connections that each stay within their limits.
    frame = b"*4\r\n$3\r\nPUT\r\n$3\r\nbig\r\n$9\r\ncontact-0\r\n$%d\r\n" % UPLOAD + bytes(UPLOAD - 1)
    greedy = []
    try:
        for _ in range(UPLOADS):
            client = Client(alice.uid)
            greedy.append(client)
            client.socket.sendall(frame)
    except (Closed, OSError) as error:
        machine.note(f"while memory ran out, a call ended so: {error}")
    for client in greedy:
        client.close()
    wait_until("somebody serves", lambda: serves(machine))
    survived = machine.daemon.pid() == pid
    machine.note(
        "it stayed within its memory" if survived else "it was ended by the kernel, and started again by systemd"
    )
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

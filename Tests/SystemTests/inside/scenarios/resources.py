"""Descriptors or memory are exhausted."""

import os
import pathlib

from commands import property_of, run
from daemon import UNIT
from resp import Client, Closed, ErrorReply, request
from waiting import Failed, check, wait_until

MEMORY_CGROUP = pathlib.Path("/opt/memory-cgroup")
# The installed unit's MemoryMax= is far above this; the daemon itself needs some 30 MiB.
MEMORY = 96 << 20
# Bytes of each upload; less than limits.image.
UPLOAD = 4 << 20
UPLOADS = 60
# Maximum share of one processor; a daemon that spins uses more.
BUSY = 0.5


def no_descriptors(machine):
    """F15: without free descriptors the daemon serves open connections, pauses accepting without spinning, and
    recovers"""
    alice = machine.people.alice
    # Only GETs, because a PUT needs a descriptor and fails when none is free.
    application = machine.people.login(alice, get_only=True)
    pid = machine.daemon.pid()
    before_all = descriptor_limit(pid)
    # A few more than are open now, so that the connections below exhaust them.
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
        application.check_no_failures(closed=0)
        machine.note(f"{spent:.2f} s of CPU time for 300 hits without free descriptors")
        idle_share(machine, pid, application)
    finally:
        limit_descriptors(pid, before_all)
    for client in waiting:
        check(client.receive() == "PONG", "a request that waited for a descriptor was not answered")
        client.close()
    check(machine.daemon.pid() == pid, "the daemon was restarted")
    check(request("PING") == "PONG", "a new request was not answered")


def descriptor_limit(pid):
    """Returns the soft limit, which the daemon has set itself."""
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
    return int(next(line for line in limits if line.startswith("Max open files")).split()[3])


def limit_descriptors(pid, count):
    # As the daemon's user, because in some containers root may not set limits of other users' processes.
    own = ["setpriv", "--reuid=thumbcached", "--regid=thumbcached", "--clear-groups"]
    run(*own, "prlimit", "--pid", str(pid), f"--nofile={count}:")


def idle_share(machine, pid, application):
    """Checks the CPU usage of the idle daemon while connections wait for descriptors."""
    application.stop()
    began = os.times().elapsed
    before = processor_time(pid)
    wait_until("two seconds have passed", lambda: os.times().elapsed - began > 2, limit=60)
    share = (processor_time(pid) - before) / (os.times().elapsed - began)
    machine.note(f"{share:.0%} of a processor while connections wait for descriptors")
    check(share < BUSY, f"the daemon spins: {share:.0%} of a processor")


def processor_time(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def little_memory(machine):
    """F16: with little memory the daemon stays within its limit, or is killed and restarted; logins and images are
    kept"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    pid = machine.daemon.pid()
    limit_memory(machine, pid)
    pid = machine.daemon.pid()
    # Incomplete requests that together exceed the memory, on connections that are each within their limits.
    frame = b"*4\r\n$3\r\nPUT\r\n$3\r\nbig\r\n$9\r\ncontact-0\r\n$%d\r\n" % UPLOAD + bytes(UPLOAD - 1)
    greedy = []
    try:
        for _ in range(UPLOADS):
            client = Client(alice.uid)
            greedy.append(client)
            client.socket.sendall(frame)
    except (Closed, OSError) as error:
        machine.note(f"a connection failed when memory was exhausted: {error}")
    for client in greedy:
        client.close()
    wait_until("the daemon serves", lambda: serves(machine))
    survived = machine.daemon.pid() == pid
    machine.note(
        "the daemon stayed within its limit" if survived else "the kernel killed the daemon, and systemd restarted it"
    )
    application.wait_for_hits()
    application.check_no_failures(closed=None)
    check(machine.daemon.image_count(alice) == 8, "alice is logged out, or images are missing")


def limit_memory(machine, pid):
    """Limits memory by the cgroup version 1 group that boots.py made, or else by MemoryMax= of the unit."""
    if (MEMORY_CGROUP / "memory.limit_in_bytes").exists():
        (MEMORY_CGROUP / "memory.limit_in_bytes").write_text(str(MEMORY))
        (MEMORY_CGROUP / "cgroup.procs").write_text(str(pid))
        return
    machine.daemon.drop_in(f"[Service]\nMemoryMax={MEMORY}\n")
    machine.daemon.restart()
    applied = property_of(UNIT, "MemoryMax")
    if applied != str(MEMORY):
        raise Failed(f"MemoryMax= has no effect here: it is {applied}")


def serves(machine):
    try:
        return request("PING") == "PONG" and machine.daemon.is_active()
    except (Closed, ErrorReply):
        return False


SCENARIOS = [no_descriptors, little_memory]

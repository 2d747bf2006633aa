"""The renderer in its unit: it renders images and has no other privileges."""

import os
import pathlib
import pwd
import struct
import zlib

from commands import attempt, property_of, run, systemctl
from daemon import RENDERER, RENDERER_SOCKET, UNIT
from resp import request
from waiting import check, wait_until

from scenarios.installation import RENDERER_PACKAGE

ACCOUNT = "mail@alice.example"
# Top-level directories that the renderer sees: programs, libraries, and the kernel's file systems.
KNOWN = {"usr", "lib", "lib32", "lib64", "libx32", "bin", "sbin", "proc", "sys", "dev"}


def makes_sizes(machine):
    """Four sizes of one image are rendered by a dynamic user without network and files"""
    use(machine)
    for side in (8, 16, 24, 32):
        check(made(machine, side), f"the image of {side} pixels was not rendered")
    worker = workers()[-1]
    for pid in (pid_of(RENDERER), worker):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        uid = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
        check(uid not in (0, pwd.getpwnam("thumbcached").pw_uid), f"process {pid} has the uid {uid}")
        check("CapEff:\t0000000000000000" in status, f"process {pid} has capabilities")
        networks = [os.readlink(f"/proc/{process}/ns/net") for process in (pid, pid_of(UNIT), "self")]
        check(len(set(networks)) == 3, f"process {pid} shares a network namespace: {networks}")
        check(not files_of(pid), f"process {pid} sees {sorted(files_of(pid))[:20]}")
    check(len(os.listdir(f"/proc/{worker}/fd")) == 1, "a worker has descriptors other than its connection")
    check("Seccomp:\t2" in pathlib.Path(f"/proc/{worker}/status").read_text(), "a worker has no seccomp filter")


def ends_with_the_user(machine):
    """A logout ends the worker that has read the user's images"""
    use(machine)
    check(made(machine, 32), "the image was not rendered")
    check(workers(), "no worker runs")
    request("LOGOUT", ACCOUNT, uid=machine.people.alice.uid)
    wait_until("the worker has ended", lambda: not workers())


def killed(machine):
    """After the renderer is killed, hits are still served and a new renderer renders other sizes"""
    use(machine)
    alice = machine.people.alice
    check(made(machine, 32), "the image was not rendered")
    held = request("GET", ACCOUNT, "me", "SIZE", "32", uid=alice.uid)
    first = pid_of(RENDERER)
    systemctl("kill", "--signal=KILL", RENDERER)
    check(request("GET", ACCOUNT, "me", "SIZE", "32", uid=alice.uid) == held, "a stored image is not served")
    sides = iter(range(33, 400))
    wait_until("another renderer renders images", lambda: made(machine, next(sides), profile="other"))
    check(pid_of(RENDERER) not in (0, first), "no new renderer runs")
    check(property_of(RENDERER_SOCKET, "ActiveState") == "active", "the renderer's socket is closed")


def upgraded(machine):
    """After an upgrade of its package the new renderer renders images, and the daemon is not restarted"""
    use(machine)
    check(made(machine, 32), "the image was not rendered")
    before, daemon = pid_of(RENDERER), machine.daemon.pid()
    run("dpkg", "--install", str(RENDERER_PACKAGE))
    sides = iter(range(33, 400))
    wait_until("the new renderer renders images", lambda: made(machine, next(sides), profile="other"))
    check(pid_of(RENDERER) not in (0, before), "the old renderer still runs")
    check(machine.daemon.pid() == daemon, "the daemon was restarted")


def without(machine):
    """Without the renderer, images are served in their original size"""
    use(machine)
    systemctl("stop", RENDERER_SOCKET, RENDERER)
    try:
        check(not made(machine, 32), "an image was rendered without a renderer")
    finally:
        systemctl("start", RENDERER_SOCKET)


# MARK: Helpers


def use(machine):
    machine.daemon.start()
    uid = machine.people.alice.uid
    request("LOGIN", ACCOUNT, uid=uid)
    for profile in ("me", "other"):
        request("PUT", ACCOUNT, profile, png(600), uid=uid)


def made(machine, side, profile="me"):
    """Whether the image of that size was rendered."""
    said = request("GET", ACCOUNT, profile, "SIZE", str(side), "META", uid=machine.people.alice.uid)
    meta = dict(zip(said[::2], said[1::2]))
    return meta[b"rendered"] is not None and (meta[b"width"], meta[b"height"]) == (side, side)


def pid_of(unit):
    return int(property_of(unit, "MainPID"))


def workers():
    """Children of the renderer."""
    parent = pid_of(RENDERER)
    return [int(pid) for pid in attempt("pgrep", "--parent", str(parent)).stdout.split()] if parent else []


def files_of(pid):
    """Returns the files that a process can see outside the known directories."""
    root = f"/proc/{pid}/root"
    places = [name for name in os.listdir(root) if name not in KNOWN]
    return {
        os.path.join(folder, name).removeprefix(root)
        for place in places
        for folder, _, names in os.walk(os.path.join(root, place))
        for name in names
    }


def png(side):
    """Returns a PNG image with a gray gradient."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes((x + y) // 5 & 0xFF for x in range(side)) for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


SCENARIOS = [makes_sizes, ends_with_the_user, killed, upgraded, without]

"""Starts the process that starts helpers, has it start a fetcher, and tries to get at the memory of both as the same uid.

Usage: same_uid.py DAEMON FETCHER, the paths of both programs. Exits with 0 if both processes are out of reach.
"""
import ctypes
import os
import socket
import subprocess
import sys
import time

PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def is_readable(process):
    """Whether its memory can be opened, which unlike ptrace(2) leaves it as it was."""
    try:
        with open(f"/proc/{process}/mem", "rb"):
            return True
    except PermissionError:
        return False


def reach(process):
    """The ways in which the process can be got at."""
    ways = ["mem"] if is_readable(process) else []
    try:
        os.readlink(f"/proc/{process}/exe")
        ways.append("exe")
    except PermissionError:
        pass
    if libc.ptrace(PTRACE_SEIZE, process, None, None) == 0:
        ways.append("ptrace")
    return ways


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(word) for word in file.read().split()]


# It can look at processes of its own uid at all: else nothing below would prove anything.
control = subprocess.Popen(["/bin/sleep", "600"])
assert reach(control.pid), "even an ordinary process of the same uid is out of reach here"
control.kill()

ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
starter = subprocess.Popen([sys.argv[1], "--start-helper", sys.argv[2]], stdin=its)
its.close()
daemon, fetcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
socket.send_fds(ours, [b"\0"], [fetcher.fileno()])  # the first of its programs
fetcher.close()
end = time.monotonic() + 60
while not children(starter.pid) and time.monotonic() < end:
    time.sleep(0.01)
worker = children(starter.pid)[0]
found = {"starter": reach(starter.pid)}
# From exec(2) to its first statement a process is as any other.
while is_readable(worker) and time.monotonic() < end:
    time.sleep(0.01)
found["fetcher"] = reach(worker)
daemon.close()
ours.close()
starter.kill()
print(found)
sys.exit(0 if found == {"starter": [], "fetcher": []} else 1)

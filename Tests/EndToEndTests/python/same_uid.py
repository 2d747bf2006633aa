"""Starts a fork server and a fetcher, and tries to access the memory of both as the same uid.

    same_uid.py DAEMON FETCHER

The arguments are the paths of the programs. Exits with 0 if every access is denied.
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
    """Whether its memory can be opened. Unlike ptrace(2), this does not change the process."""
    try:
        with open(f"/proc/{process}/mem", "rb"):
            return True
    except PermissionError:
        return False


def accesses(process):
    """The accesses to the process that are permitted."""
    permitted = ["mem"] if is_readable(process) else []
    try:
        os.readlink(f"/proc/{process}/exe")
        permitted.append("exe")
    except PermissionError:
        pass
    if libc.ptrace(PTRACE_SEIZE, process, None, None) == 0:
        permitted.append("ptrace")
    return permitted


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(word) for word in file.read().split()]


def name(process):
    with open(f"/proc/{process}/comm") as file:
        return file.read().rstrip("\n")


# Proves that processes of the same uid are accessible by default.
control = subprocess.Popen(["/bin/sleep", "600"])
assert accesses(control.pid), "no process of the same uid is accessible"
control.kill()

ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
fork_server = subprocess.Popen([sys.argv[1], "--fork-server", sys.argv[2]], stdin=its)
its.close()
daemon, fetcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
socket.send_fds(ours, [b"\0"], [fetcher.fileno()])  # index 0: the first program
fetcher.close()
end = time.monotonic() + 60
while not children(fork_server.pid) and time.monotonic() < end:
    time.sleep(0.01)
fetcher_process = children(fork_server.pid)[0]
found = {"fork_server": accesses(fork_server.pid)}
# Before execve(2), the process is as inaccessible as the fork server, and has its name: proc_pid_comm(5).
while name(fetcher_process) != os.path.basename(sys.argv[2])[:15] and time.monotonic() < end:
    time.sleep(0.01)
# A process is accessible between execve(2) and its first statements.
while is_readable(fetcher_process) and time.monotonic() < end:
    time.sleep(0.01)
found["fetcher"] = accesses(fetcher_process)
daemon.close()
ours.close()
fork_server.kill()
print(found)
sys.exit(0 if found == {"fork_server": [], "fetcher": []} else 1)

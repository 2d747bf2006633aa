"""Starts a daemon, and tries to access the memory of its fork server and its fetcher as the same uid.

    same_uid.py DAEMON

Exits with 0 if every access is denied.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import time

PTRACE_SEIZE = 0x4206
DEADLINE = time.monotonic() + 60
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


def first_child(process):
    while not children(process) and time.monotonic() < DEADLINE:
        time.sleep(0.01)
    return children(process)[0]


def name(process):
    with open(f"/proc/{process}/comm") as file:
        return file.read().rstrip("\n")


# Proves that processes of the same uid are accessible by default.
control = subprocess.Popen(["/bin/sleep", "600"])
assert accesses(control.pid), "no process of the same uid is accessible"
control.kill()

with tempfile.TemporaryDirectory() as folder:
    configuration = f"{folder}/thumbcached.toml"
    with open(configuration, "w") as file:
        file.write(f'''socket.path = "{folder}/socket"
storage.cache = "{folder}/cache"
storage.state = "{folder}/state"
storage.runtime = "{folder}/runtime"
''')
    daemon = subprocess.Popen([sys.argv[1], "--config", configuration])
    try:
        fork_server = first_child(daemon.pid)
        fetcher = first_child(fork_server)
        # Until it calls execve(2), the process has the name of the fork server: proc_pid_comm(5).
        while name(fetcher) == name(fork_server) and time.monotonic() < DEADLINE:
            time.sleep(0.01)
        # A process is accessible between execve(2) and its first statements, and the fork server after fork(2) if the
        # daemon is.
        while (is_readable(fetcher) or is_readable(fork_server)) and time.monotonic() < DEADLINE:
            time.sleep(0.01)
        found = {"fork server": accesses(fork_server), "fetcher": accesses(fetcher)}
    finally:
        daemon.terminate()
        daemon.wait()
print(found)
sys.exit(0 if found == {"fork server": [], "fetcher": []} else 1)

"""Simulates a compromised fetcher: hostile.py PID UID PATH…

Runs as the fetcher's unit instead of the fetcher. Attempts everything that the fetcher must not be able to do to the
daemon (PID and UID) and to the given paths, and writes one line for each attempt:

    hostile: open /var/lib/thumbcached: refused (EACCES)
    hostile: kill of 4711: DONE
    hostile: end

Run as root outside the unit, every attempt succeeds. This shows that the attempts are effective.
"""

import ctypes
import errno
import os
import socket
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
# System call numbers; the same on every architecture.
PIDFD_OPEN, PIDFD_GETFD = 434, 438
PTRACE_SEIZE = 0x4206
CLONE_NEWUSER = 0x10000000


def attempt(what, function):
    try:
        function()
    except OSError as error:
        said = f"refused ({errno.errorcode.get(error.errno, error.errno)})"
    else:
        said = "DONE"
    print(f"hostile: {what}: {said}", flush=True)


def call(function, *arguments):
    """Calls a function of the C library; raises OSError if it returns -1."""
    result = function(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# MARK: Files


def look(path):
    if stat.S_ISDIR(os.stat(path).st_mode):
        os.listdir(path)
    else:
        os.close(os.open(path, os.O_RDONLY))


def change(path):
    """Opens a file for writing, or creates a file in a directory."""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        return os.close(os.open(path, os.O_WRONLY))
    path = f"{path}/hostile-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)


# MARK: Sockets


def connect(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)


def connect_one_of_a_pair(path):
    """Connects a socket made by socketpair(2), in case only socket(2) is forbidden."""
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, other:
        try:
            ours.connect(path)
        except OSError as error:
            # EPROTOTYPE: the kernel has found the socket and permitted access; only the socket type differs.
            if error.errno != errno.EPROTOTYPE:
                raise


# MARK: The daemon


def read_memory(pid):
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    byte = ctypes.create_string_buffer(1)
    here, there = Piece(ctypes.addressof(byte), 1), Piece(8, 1)
    try:
        call(LIBC.process_vm_readv, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    except OSError as error:
        # The kernel checks permissions before the address, and nothing is mapped at address 8.
        if error.errno != errno.EFAULT:
            raise


def trace(pid):
    LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    LIBC.ptrace.restype = ctypes.c_long
    # The kernel detaches when this process ends.
    call(LIBC.ptrace, PTRACE_SEIZE, pid, None, None)


def take_descriptor(pid):
    pidfd = call(LIBC.syscall, PIDFD_OPEN, pid, 0)
    try:
        os.close(call(LIBC.syscall, PIDFD_GETFD, pidfd, 0, 0))
    finally:
        os.close(pidfd)


# MARK: Itself


def in_a_child(function):
    """Wraps a function so that it runs in a child process, because its effect cannot be undone."""

    def run():
        child = os.fork()
        if child == 0:
            code = 0
            try:
                function()
            except OSError as error:
                code = error.errno
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            raise OSError(code, os.strerror(code))

    return run


def become(uid):
    call(LIBC.setresuid, uid, uid, uid)


def main():
    pid, uid, paths = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for path in paths:
        if path.endswith(".sock"):
            attempt(f"connect to {path}", lambda path=path: connect(path))
            attempt(f"connect one of a pair to {path}", lambda path=path: connect_one_of_a_pair(path))
            continue
        if not path.endswith("/"):
            attempt(f"look at {path}", lambda path=path: look(path))
        attempt(f"change {path}", lambda path=path: change(path))
    for file in ("mem", "environ", "maps", "fd/0"):
        attempt(f"{file} of {pid}", lambda file=file: os.close(os.open(f"/proc/{pid}/{file}", os.O_RDONLY)))
    attempt(f"process_vm_readv of {pid}", lambda: read_memory(pid))
    attempt(f"ptrace of {pid}", lambda: trace(pid))
    attempt(f"pidfd_getfd of {pid}", lambda: take_descriptor(pid))
    # Signal 0 has the same permission check as SIGKILL.
    attempt(f"kill of {pid}", lambda: os.kill(pid, 0))
    attempt("become the daemon's user", in_a_child(lambda: become(uid)))
    attempt("create a user namespace", in_a_child(lambda: call(LIBC.unshare, CLONE_NEWUSER)))
    attempt("execute another program", in_a_child(lambda: os.execv("/bin/true", ["true"])))
    attempt("create a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
    print("hostile: end", flush=True)


if __name__ == "__main__":
    main()

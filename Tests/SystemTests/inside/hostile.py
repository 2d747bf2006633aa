"""Stands in for somebody who has broken into the process that downloads: hostile.py PID UID PATH…

In its place, started for the daemon's connection, it tries everything that this process is not to be able to do to the
daemon (its PID and UID) and to what lies at the paths, and writes a line on each try:

    hostile: open /var/lib/thumbcached: refused (EACCES)
    hostile: kill of 4711: DONE
    hostile: end

Run by root, without a unit, it shows that each try is one: all of them are DONE.
"""

import ctypes
import errno
import os
import socket
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
# The same number on every architecture.
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
    """A function of the C library's that says -1 where it is refused."""
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
    """What everybody may look at ends in a slash here."""
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
    """One of a pair of datagram sockets can be connected to any other of its kind, and is made by no socket(2)."""
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, other:
        try:
            ours.connect(path)
        except OSError as error:
            # The kernel found it, and would have let it be connected but for its kind.
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
        # The address is judged last, and there is nothing at this one.
        if error.errno != errno.EFAULT:
            raise


def trace(pid):
    LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    LIBC.ptrace.restype = ctypes.c_long
    # It ends with this process.
    call(LIBC.ptrace, PTRACE_SEIZE, pid, None, None)


def take_descriptor(pid):
    pidfd = call(LIBC.syscall, PIDFD_OPEN, pid, 0)
    try:
        os.close(call(LIBC.syscall, PIDFD_GETFD, pidfd, 0, 0))
    finally:
        os.close(pidfd)


# MARK: Itself


def in_a_child(function):
    """What cannot be undone is done in a process of its own."""

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
    # Nothing is sent, but all is asked that is asked for SIGKILL.
    attempt(f"kill of {pid}", lambda: os.kill(pid, 0))
    attempt("become the daemon's user", in_a_child(lambda: become(uid)))
    attempt("a namespace of users", in_a_child(lambda: call(LIBC.unshare, CLONE_NEWUSER)))
    attempt("another program", in_a_child(lambda: os.execv("/bin/true", ["true"])))
    attempt("a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
    print("hostile: end", flush=True)


if __name__ == "__main__":
    main()

"""Stops one thread of another process until this process ends: hold_thread.py THREAD

SIGSTOP would stop the whole process. ptrace(2) stops a single thread: PTRACE_SEIZE, then PTRACE_INTERRUPT. Writes
"held" when the thread has stopped.
"""

import ctypes
import os
import sys

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
WALL = 0x40000000


def trace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main():
    thread = int(sys.argv[1])
    trace(PTRACE_SEIZE, thread)
    trace(PTRACE_INTERRUPT, thread)
    while True:
        _, status = os.waitpid(thread, WALL)
        # The tracer must reap the thread; otherwise the traced process remains a zombie.
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return
        print("held", flush=True)


if __name__ == "__main__":
    main()

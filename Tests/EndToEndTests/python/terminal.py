#!/usr/bin/env python3
"""Runs a program on a terminal that does as it is told, and prints all that the program wrote there.

    terminal.py [--graphics | --silent] STEP... -- PROGRAM ARGUMENT...

Steps, one after the other: size=80x24, see=TEXT (waits until that is shown, behind what was seen before),
type=TEXT, signal=NAME, run=COMMAND. Then the program has to end. Exits with its status, 128 and more for a signal; with 99 where
something does not come within 30 s, or the program left the terminal in another state than it found it in.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

QUESTION = b"\x1b[c"
ATTRIBUTES = b"\x1b[?62;22c"
GRAPHICS = b"\x1b_Gi=31;OK\x1b\\"


class Terminal:
    def __init__(self, command, has_graphics, is_silent, size):
        self.shown, self.seen, self.asked = b"", 0, 0
        self.has_graphics, self.is_silent = has_graphics, is_silent
        self.near, self.far = pty.openpty()
        self.resize(size)
        self.before = termios.tcgetattr(self.far)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.far, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(self.far, number)
            os.closerange(3, 64)
            os.execvp(command[0], command)

    def resize(self, size):
        columns, rows = (int(number) for number in size.split("x"))
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        """False where nothing came."""
        if not select.select([self.near], [], [], seconds)[0]:
            return False
        self.shown += os.read(self.near, 65536)
        while (place := self.shown.find(QUESTION, self.asked)) >= 0:
            self.asked = place + len(QUESTION)
            if not self.is_silent:
                os.write(self.near, (GRAPHICS if self.has_graphics else b"") + ATTRIBUTES)
        return True

    def see(self, text):
        deadline = time.monotonic() + 30
        while (place := self.shown.find(text, self.seen)) < 0:
            if time.monotonic() > deadline:
                self.fail(f"{text} is not shown")
            self.read(0.1)
        self.seen = place + len(text)

    def end(self):
        deadline = time.monotonic() + 30
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.fail("the program does not end")
            self.read(0.05)
        while self.read(0):
            pass
        if termios.tcgetattr(self.far) != self.before:
            self.fail("the terminal is not as it was")
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def fail(self, reason):
        sys.stdout.buffer.write(self.shown)
        sys.stdout.flush()
        print(f"terminal.py: {reason}", file=sys.stderr)
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        sys.exit(99)


def main():
    split = sys.argv.index("--")
    steps, command = sys.argv[1:split], sys.argv[split + 1:]
    has_graphics, is_silent = "--graphics" in steps, "--silent" in steps
    steps = [step.split("=", 1) for step in steps if not step.startswith("--")]
    size = steps.pop(0)[1] if steps and steps[0][0] == "size" else "80x24"
    terminal = Terminal(command, has_graphics, is_silent, size)
    for name, value in steps:
        if name == "size":
            terminal.resize(value)
        elif name == "see":
            terminal.see(value.encode())
        elif name == "type":
            os.write(terminal.near, value.encode())
        elif name == "signal":
            os.kill(terminal.pid, getattr(signal, "SIG" + value))
        elif name == "run":
            os.system(value)
        else:
            terminal.fail(f"there is no step {name}")
    status = terminal.end()
    sys.stdout.buffer.write(terminal.shown)
    sys.exit(status)


main()

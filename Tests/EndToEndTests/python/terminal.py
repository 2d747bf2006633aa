#!/usr/bin/env python3
"""Runs a program on a pseudoterminal, performs steps, and prints the program's output.

    terminal.py [--graphics | --silent] STEP... -- PROGRAM ARGUMENT...

With --graphics, the terminal reports support for graphics; with --silent, it answers no queries. Steps:

    size=80x24      resize the terminal
    see=TEXT        wait for TEXT in the output after the previous match
    type=TEXT       send TEXT as input
    signal=NAME     send a signal to the program
    run=COMMAND     run a shell command

The program must exit after the last step. Exits with its status, or 128 plus the number of its signal. Exits with 99
after a timeout of 30 s, or if the program does not restore the terminal settings.
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

QUERY = b"\x1b[c"
ATTRIBUTES = b"\x1b[?62;22c"
GRAPHICS = b"\x1b_Gi=31;OK\x1b\\"


class Terminal:
    def __init__(self, command, has_graphics, is_silent, size):
        self.output, self.seen, self.answered = b"", 0, 0
        self.has_graphics, self.is_silent = has_graphics, is_silent
        self.controller, self.terminal = pty.openpty()
        self.resize(size)
        self.before = termios.tcgetattr(self.terminal)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.terminal, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(self.terminal, number)
            os.closerange(3, 64)
            os.execvp(command[0], command)

    def resize(self, size):
        columns, rows = (int(number) for number in size.split("x"))
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        """Reads output and answers queries. Returns False after a timeout."""
        if not select.select([self.controller], [], [], seconds)[0]:
            return False
        self.output += os.read(self.controller, 65536)
        while (index := self.output.find(QUERY, self.answered)) >= 0:
            self.answered = index + len(QUERY)
            if not self.is_silent:
                os.write(self.controller, (GRAPHICS if self.has_graphics else b"") + ATTRIBUTES)
        return True

    def see(self, text):
        deadline = time.monotonic() + 30
        while (index := self.output.find(text, self.seen)) < 0:
            if time.monotonic() > deadline:
                self.fail(f"timeout waiting for {text}")
            self.read(0.1)
        self.seen = index + len(text)

    def end(self):
        deadline = time.monotonic() + 30
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.fail("timeout waiting for the exit of the program")
            self.read(0.05)
        while self.read(0):
            pass
        if termios.tcgetattr(self.terminal) != self.before:
            self.fail("the program did not restore the terminal settings")
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def fail(self, reason):
        sys.stdout.buffer.write(self.output)
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
            os.write(terminal.controller, value.encode())
        elif name == "signal":
            os.kill(terminal.pid, getattr(signal, "SIG" + value))
        elif name == "run":
            os.system(value)
        else:
            terminal.fail(f"unknown step {name}")
    status = terminal.end()
    sys.stdout.buffer.write(terminal.output)
    sys.exit(status)


main()

"""Runs a program on a pseudoterminal, sends it lines, and prints its output.

    interactive.py 'PROMPT' PROGRAM [ARGUMENT …] < LINES

Sends each line after the next prompt. The program must exit after the last line.
"""

import os
import pty
import select
import sys


def main():
    prompt, program = sys.argv[1].encode(), sys.argv[2:]
    lines = sys.stdin.buffer.read().splitlines()
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "dumb"
        os.environ["REDISCLI_HISTFILE"] = "/dev/null"  # the default is in the home directory
        os.execvp(program[0], program)
    shown, seen = b"", 0
    while True:
        ready, _, _ = select.select([terminal], [], [], 20)
        if not ready:
            sys.exit(f"no output within 20 s after {shown!r}")
        try:
            data = os.read(terminal, 65536)
        except OSError:  # EIO: the last process on the terminal has ended
            break
        if not data:
            break
        shown += data
        while lines and shown.find(prompt, seen) >= 0:
            seen = shown.find(prompt, seen) + len(prompt)
            os.write(terminal, lines.pop(0) + b"\n")
    _, status = os.waitpid(child, 0)
    sys.stdout.buffer.write(shown)
    sys.exit(os.waitstatus_to_exitcode(status))


main()

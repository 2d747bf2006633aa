"""Programs of the system, run and asked."""

import subprocess

from waiting import Failed

# No program that is run here takes as long.
LIMIT = 300


def attempt(*words, **options):
    """Runs a program and returns how it ended, with its output as text."""
    options.setdefault("timeout", LIMIT)
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)


def run(*words, **options):
    """Runs a program that must succeed, and returns what it printed."""
    ended = attempt(*words, **options)
    if ended.returncode != 0:
        raise Failed(f"{' '.join(words)}: status {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.stdout


def systemctl(*words):
    return run("systemctl", *words)


def property_of(unit, name):
    return systemctl("show", "--property", name, "--value", unit).strip()

"""Runs programs of the system."""

import subprocess

from waiting import Failed

# Seconds; longer than any program run here takes.
LIMIT = 300


def attempt(*words, **options):
    """Runs a program and returns its exit status and its output as text."""
    options.setdefault("timeout", LIMIT)
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)


def run(*words, **options):
    """Runs a program that must succeed and returns its output."""
    ended = attempt(*words, **options)
    if ended.returncode != 0:
        raise Failed(f"{' '.join(words)}: status {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.stdout


def systemctl(*words):
    return run("systemctl", *words)


def property_of(unit, name):
    return systemctl("show", "--property", name, "--value", unit).strip()

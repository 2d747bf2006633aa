"""Checks and waits; an unmet condition fails the scenario."""

import time

# Seconds; much longer than any step takes on a busy machine.
LIMIT = 90


class Failed(Exception):
    """The software under test does not behave as the scenario requires."""


def check(condition, words):
    if not condition:
        raise Failed(words)


def wait_until(what, condition, limit=LIMIT):
    """Evaluates the condition every few milliseconds until it is true, and returns its value. Fails at the limit."""
    deadline = time.monotonic() + limit
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise Failed(f"timed out after {limit} s waiting until {what}")
        time.sleep(0.005)

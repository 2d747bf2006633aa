"""Conditions, waited for; what is not met fails the scenario and says so."""

import time

# Far beyond what anything takes, for machines that do much else.
LIMIT = 90


class Failed(Exception):
    """The scenario's subject does not do what it must."""


def check(condition, words):
    if not condition:
        raise Failed(words)


def wait_until(what, condition, limit=LIMIT):
    """Looks every few milliseconds until the condition holds, and returns what it returned."""
    deadline = time.monotonic() + limit
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise Failed(f"waited {limit} s in vain until {what}")
        time.sleep(0.005)

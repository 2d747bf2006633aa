"""How tightly the units are confined, as the booted system sees them."""

import re

from commands import attempt, run
from daemon import SOCKET, UNIT
from waiting import check

EXPOSURE = 1.3
HOOK = "thumbcached-logout@2001.service"


def is_confined(machine):
    """systemd-analyze security rates the running service at 1.3 or lower"""
    overall = run("systemd-analyze", "security", "--no-pager", UNIT).splitlines()[-1]
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", overall)
    check(found is not None, f"systemd-analyze did not end with an exposure level but with: {overall}")
    machine.note(f"exposure {found[1]}")
    check(float(found[1]) <= EXPOSURE, f"the exposure is {found[1]}")


def is_valid(_):
    """systemd-analyze verify has nothing to say about any unit"""
    for unit in (UNIT, SOCKET, HOOK):
        ended = attempt("systemd-analyze", "verify", "--man=no", unit)
        said = [line for line in (ended.stdout + ended.stderr).splitlines() if "thumbcached" in line]
        check(ended.returncode == 0 and not said, f"{unit}: status {ended.returncode}: {' '.join(said)}")


SCENARIOS = [is_confined, is_valid]

"""Runs the scenarios of this boot, writes their results, and powers off."""

import json
import pathlib
import sys
import time
import traceback

from commands import attempt
from machine import EXCHANGE, Machine
from scenarios import (
    activation,
    confinement,
    fetcher,
    http_figures,
    installation,
    intruders,
    logout,
    managers,
    outage,
    own,
    reboot,
    removal,
    renderer,
    resources,
    start,
    watchdog,
)
from waiting import Failed

# The first scenario of a boot prepares itself, because it tests the boot or the machine without the packages.
BOOTS = [
    [
        installation.SCENARIOS,
        confinement.SCENARIOS,
        fetcher.SCENARIOS,
        http_figures.SCENARIOS,
        renderer.SCENARIOS,
        logout.SCENARIOS,
        # Before scenarios that downgrade thumbcached, which removes thumbcached-renderer.
        own.SCENARIOS,
        managers.SCENARIOS,
        activation.SCENARIOS,
        start.SCENARIOS,
        intruders.SCENARIOS,
        watchdog.SCENARIOS,
        resources.SCENARIOS,
        outage.SCENARIOS,
        [reboot.before_an_ordinary_boot],
    ],
    [[reboot.first_call, reboot.an_ordinary_boot], [reboot.before_a_boot_with_runtime_keys]],
    [[reboot.a_boot_with_runtime_keys], [reboot.before_a_boot_that_purges]],
    [[reboot.a_boot_that_purges], [reboot.before_a_shutdown]],
    [[reboot.a_shutdown], removal.SCENARIOS],
]


def main():
    options = json.loads((EXCHANGE / "options.json").read_text(encoding="utf-8"))
    groups = BOOTS[options["boot"] - 1]
    scenarios = [scenario for group in groups for scenario in group]
    chosen = [scenario for scenario in scenarios if is_chosen(scenario, options["only"])]
    machine = Machine(options["rounds"])
    with (EXCHANGE / f"results-{options['boot']}.jsonl").open("w", encoding="utf-8") as results:
        write(results, {"plan": [name_of(scenario) for scenario in chosen]})
        for scenario in chosen:
            record = run(machine, scenario)
            write(results, record)
            if record["reason"] is not None and scenario is installation.installs:
                # Without the packages all other scenarios would fail.
                write(results, {"more": False})
                return
        write(results, {"more": options["boot"] < len(BOOTS)})


def is_chosen(scenario, text):
    """Whether to run a scenario: if its title contains the text, or if others depend on it."""
    return text.lower() in name_of(scenario).lower() or scenario in [installation.installs, *reboot.ALWAYS]


def name_of(scenario):
    return " ".join(scenario.__doc__.split())


def run(machine, scenario):
    began = time.monotonic()
    cursor = machine.daemon.now()
    reason = None
    try:
        if not getattr(scenario, "prepares_itself", False):
            machine.begin()
        cursor = machine.daemon.now()
        scenario(machine)
    except Failed as failure:
        place = traceback.extract_tb(failure.__traceback__)
        lines = [
            f"{pathlib.Path(frame.filename).name}:{frame.lineno}" for frame in place if "scenarios" in frame.filename
        ]
        reason = f"{failure} ({', '.join(lines)})"
    except Exception:  # noqa: BLE001 — the other scenarios must still run
        reason = traceback.format_exc()
    record = {
        "name": name_of(scenario),
        "reason": reason,
        "seconds": time.monotonic() - began,
        "notes": machine.notes,
        "journal": "",
    }
    if reason is not None:
        record["journal"] = "\n".join(machine.daemon.journal(cursor)[-60:])
    return record


def write(file, record):
    file.write(json.dumps(record) + "\n")
    file.flush()


if __name__ == "__main__":
    try:
        main()
    finally:
        attempt("journalctl", "--sync")
        if (EXCHANGE / "cut-power").exists():
            (EXCHANGE / "cut-power").unlink()
            # Powers off without stopping any unit, as a power cut does.
            attempt("sync")
            attempt("systemctl", "poweroff", "--force", "--force")
        sys.stdout.flush()

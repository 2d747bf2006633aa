"""Compares thumbcached with Redis, memcached, nginx, Varnish and curl in one run.

    python3 bench PROGRAMS [--rounds N] [--quick] [--only P1,P7 …] [--skip B1 …] [--json FILE]
    python3 bench --from FILE                updates docs/performance.md and bench/results.md from an earlier run

PROGRAMS is the directory with the release programs and FloorServer (`make bench` builds them). The exit status is 1
only if a row is missing; a missed goal is not an error. `--quick` does a small part of the work, to test the benchmark
itself. `--only` and `--skip` select the parts that contain the given rows.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from figures import Run
import machine
import report
from rows import avatars, building, connections, events, fairness, growth, hits, idle, misses, renditions, scale, tail
from rows import tier, writes
from world import processes
from world.subject import Subject

#: The rows of each module.
PARTS = [
    (("P1", "P2", "P3", "P4"), hits),
    (("P4 tier",), tier),
    (("P4 tail",), connections),
    (("P5", "P6"), misses),
    (("P7", "P8"), writes),
    (("P9", "P10"), scale),
    (("P11",), tail),
    (("P13", "P14"), events),
    (("R1", "R2", "R3", "R4", "R5", "R6"), renditions),
    (("H1",), avatars),
    (("B2", "B3"), idle),
    # Takes about ten minutes.
    (("B1",), building),
]
#: P12 needs several accounts, hence root. "growth" reads the memory of all processes, and takes about ten minutes.
PARTS_OF_ROOT = [(("P12",), fairness), (("growth",), growth)]


def main():
    options = arguments()
    if options.earlier:
        root = pathlib.Path(__file__).resolve().parent.parent
        report.write_documents(root, *report.from_json(options.earlier.read_text()))
        return 0
    processes.raise_descriptor_limit()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # Respects nohup(1).
            signal.signal(number, handle_signal)
    home = pathlib.Path(tempfile.mkdtemp(prefix="thumbcached-bench-"))
    rows, failed, skipped = [], False, set()
    try:
        run = Run(home, Subject(options.programs), options.rounds, options.quick)
        for ids, part in PARTS + (PARTS_OF_ROOT if os.geteuid() == 0 else []):
            if set(ids) & set(options.skip):
                skipped |= set(ids)
            elif not options.only or set(ids) & set(options.only):
                failed |= not measure(ids, part, run, rows)
        described = machine.describe(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print("\n" + machine.in_words(described) + "\n\n" + report.table(rows, options.rounds))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(report.to_json(rows, described, options.rounds))
    missing = [] if options.only else [id for id in report.missing(rows) if part_of(id) not in skipped]
    if missing:
        print(f"bench: no figures for {', '.join(missing)}", file=sys.stderr)
    return 1 if failed or missing else 0


def part_of(id):
    """Returns the id of the part that measures a row: "P12" for "P12 limit", "P4 tail" for "P4 tail, misses"."""
    parts = [part for ids, _ in PARTS + PARTS_OF_ROOT for part in ids]
    return max((part for part in parts if id == part or id.startswith((f"{part} ", f"{part},"))), key=len)


def handle_signal(number, _):
    """Exits, so that all started programs are stopped; further signals are ignored meanwhile."""
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="?", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--skip", type=lambda text: text.split(","), default=[])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--from", dest="earlier", type=pathlib.Path)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1")
    if (options.programs is None) == (options.earlier is None):
        parser.error("expected either PROGRAMS or --from FILE")
    return options


def measure(ids, part, run, rows):
    """Runs one part. An error is reported and the part's rows are missing; the other parts still run."""
    begin = time.monotonic()
    print(f"{' '.join(ids)} …", flush=True)
    try:
        for row in part.rows(run):
            print(report.details(row), flush=True)
            rows.append(row)
        return True
    except Exception as error:
        # Catches all exceptions, such as timeouts of a client, because other parts must still run.
        print(f"bench: {', '.join(ids)}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    finally:
        print(f"({time.monotonic() - begin:.0f} s)", flush=True)


sys.exit(main())

"""thumbcached beside Redis, memcached, nginx, Varnish and curl: every row of docs/performance.md, in one run.

    python3 bench PROGRAMS [--rounds N] [--quick] [--only P1,P7 …] [--skip B1 …] [--json FILE] [--document DIRECTORY]
    python3 bench --from FILE --document DIRECTORY          writes the document of an earlier run anew

PROGRAMS is the directory that holds thumbcached and FloorServer (`make bench` builds them and calls this). A ratio that
misses its goal is no failure: the status tells only whether every row is there. `--quick` does a small part of the
work, to see that it runs. `--only` measures the parts that have these rows; a document then gets the tables that are
whole. `--skip` leaves out the parts that have these rows.
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
from rows import building, even, events, fairness, hits, idle, misses, renditions, scale, tail, tier, writes
from world import processes
from world.subject import Subject

#: Which file measures which rows.
PARTS = [
    (("P1", "P2", "P3", "P4"), hits),
    (("P4 tier",), tier),
    (("P4 tail",), even),
    (("P5", "P6"), misses),
    (("P7", "P8"), writes),
    (("P9", "P10"), scale),
    (("P11",), tail),
    (("P13", "P14"), events),
    (("R1", "R2", "R3", "R4", "R5", "R6"), renditions),
    (("B2", "B3"), idle),
    # Takes some ten minutes.
    (("B1",), building),
]
#: P12 takes several accounts, which root alone can be.
PARTS_OF_ROOT = [(("P12",), fairness)]


def main():
    options = arguments()
    if options.earlier:
        report.write_document(options.document, *report.from_json(options.earlier.read_text()))
        return 0
    processes.raise_descriptor_limit()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # As nohup(1) wants it.
            signal.signal(number, end_from_outside)
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
    if failed or missing:
        return 1
    if options.document:
        report.write_document(options.document, rows, described, options.rounds)
    return 0


def part_of(id):
    """A row of a part: "P12 limit" is one of P12, and "P4 tier" a part by itself."""
    return id if any(id in ids for ids, _ in PARTS) else id.split()[0]


def end_from_outside(number, _):
    """A run that is ended from outside ends what it has started, too; and no second signal keeps it from that."""
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
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--from", dest="earlier", type=pathlib.Path)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1")
    if (options.programs is None) == (options.earlier is None):
        parser.error("give the directory of the programs, or --from with the figures of an earlier run")
    if options.earlier and not options.document:
        parser.error("--from needs --document, the directory to write to")
    return options


def measure(ids, part, run, rows):
    """Runs one part. Whatever fails in it is told and its rows are missing; the other parts are measured all the same.
    """
    begin = time.monotonic()
    print(f"{' '.join(ids)} …", flush=True)
    try:
        for row in part.rows(run):
            print(report.details(row), flush=True)
            rows.append(row)
        return True
    except Exception as error:
        # Also what nobody thought of, such as a client that hangs: the figures of other rows do not go with it.
        print(f"bench: {', '.join(ids)}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    finally:
        print(f"({time.monotonic() - begin:.0f} s)", flush=True)


sys.exit(main())

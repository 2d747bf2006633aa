"""The reports of a run: a table on standard output, JSON, and the documents that contain the results."""

import json
import os
import re
import textwrap

from figures import Figure, Row, show
import machine
import plot
from rows.floods import FLOODS
from rows.growth import AXES

#: The rows that every run must have. "P4 cores" is not among them, because it needs two cores.
EXPECTED = [f"P{number}" for number in [*range(1, 12), 13, 14]] + [f"R{number}" for number in range(1, 7)] + [
    "P2 limit",
    "P3 limit",
    "P3 piped",
    "P3 floor",
    "P3 floor, piped",
    "P3 cores",
    "P3 cores, one image",
    "P3 nginx",
    "P3 nginx limit",
    "P4 limit",
    "P4 tier",
    "P4 tail",
    "P4 tail, misses",
    "P4 tail, PUTs",
    "P4 tail limit",
    "P4 tail, PUTs limit",
    "P7 again",
    "P8 tree",
    "P11 limit",
    "P11 eviction",
    "P11 revalidation",
    "P11 start",
    "P13 limit",
    "P13 redis",
    "P13 cache",
    "R1 limit",
    "H1",
    "H1 floor",
    "H1 limit",
    "B1",
    "B2",
]
#: The rows that need root, because they use several accounts or read the memory of protected processes.
EXPECTED_OF_ROOT = [
    f"P12 {name}"
    for name in [flood.name for flood in FLOODS]
    + ["quiet", "limit", "limit, 1 core", "limit, all cores", "limit, disk"]
] + [
    "B3",
    "B3 limit",
    *(f"growth {axis}" for axis in AXES),
]
#: The rows of docs/performance.md, each with the row that contains its limit. bench/results.md has all rows.
SHOWN = {
    "P1": None,
    "P2": "P2 limit",
    "P3": "P3 limit",
    "P4": "P4 limit",
    "P4 tier": None,
    "P4 tail": "P4 tail limit",
    "P5": None,
    "P7": None,
    "P8": None,
    "P9": None,
    "P10": None,
    "P11": "P11 limit",
    "P12 misses": "P12 limit",
    "P13": "P13 limit",
    "P14": None,
    "R1": "R1 limit",
    "R3": None,
    "H1": "H1 limit",
    "B2": None,
    "B3": "B3 limit",
}


def missing(rows):
    expected = EXPECTED + (EXPECTED_OF_ROOT if os.geteuid() == 0 else [])
    return [id for id in expected if id not in {row.id for row in rows}]


def verdict(row):
    if row.met is None or row.met:
        return "" if row.met is None else "yes"
    return f"no: {row.missed}" if row.missed and row.reaches_ratio else "no"


def what(row, rounds):
    """The row's description, with its number of rounds if that differs from the run's."""
    return row.what if row.rounds == rounds else f"{row.what} ({row.rounds} round{'' if row.rounds == 1 else 's'})"


def table(rows, rounds):
    lines = [("", "what", "against", "ratio", "goal", "met")]
    lines += [(row.id, what(row, rounds), row.against, show(row.ratio), row.goal_text, verdict(row)) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def details(row):
    if row.is_line:
        return f"{row.id}: " + ", ".join(f"{figure.name} {show(figure.median)}" for figure in row.figures)
    return "\n".join([f"{row.id}: {row.what}"] + [f"    {figure.label}: {figure.text()}" for figure in row.figures])


def to_json(rows, described, rounds):
    return (
        json.dumps(
            {
                "machine": described,
                "rounds": rounds,
                "rows": [
                    {
                        "id": row.id,
                        "what": row.what,
                        "against": row.against,
                        "ratio": round(row.ratio, 4),
                        "goal": row.goal,
                        "more_is_better": row.more_is_better,
                        "met": row.met,
                        "rounds": row.rounds,
                        "note": row.note,
                        "missed": row.missed,
                        "is_line": row.is_line,
                        "figures": [
                            {
                                "name": figure.name,
                                "unit": figure.unit,
                                "median": figure.median,
                                "values": figure.values,
                                "at": figure.at,
                            }
                            for figure in row.figures
                        ],
                    }
                    for row in rows
                ],
            },
            indent=1,
        )
        + "\n"
    )


def from_json(text):
    kept = json.loads(text)
    rows = [
        Row(
            row["id"],
            row["what"],
            row["against"],
            row["ratio"],
            row["goal"],
            row["more_is_better"],
            [
                Figure(figure["name"], figure["unit"], figure["values"], figure.get("at"))
                for figure in row["figures"]
            ],
            row["note"],
            row["missed"],
            row.get("is_line", False),
        )
        for row in kept["rows"]
    ]
    return rows, kept["machine"], kept["rounds"]


def write_documents(root, rows, described, rounds):
    """Writes docs/performance.md's table and plots, and bench/results.md; of a run with `--only growth`, the plots."""
    by_id = {row.id: row for row in rows}
    grown = {axis: by_id[f"growth {axis}"] for axis in AXES if f"growth {axis}" in by_id}
    for axis, row in grown.items():
        (root / f"docs/growth-{axis}.svg").write_text(plot.growth(row, axis))
    if len(grown) == len(rows):
        return
    if lacking := [id for id in SHOWN if id not in by_id]:
        raise ValueError(f"no results for {', '.join(lacking)}; run make bench without SKIP, as root")
    shown = [by_id[id] for id in SHOWN]
    (root / "docs/performance.svg").write_text(plot.svg(shown))
    document = root / "docs/performance.md"
    begin, end = (f"<!-- {place}: written by make bench-docs -->" for place in ("begin", "end"))
    text = document.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{document} must contain each of the marks {begin} and {end} once")
    part = "\n".join([begin, *summary(shown, by_id, described, rounds), end])
    document.write_text(re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: part, text, flags=re.DOTALL))
    (root / "bench/results.md").write_text(full(rows, described, rounds))


def summary(shown, by_id, described, rounds):
    lines = [
        prose(f"{machine.in_words(described)}. Medians of {rounds} rounds, unless the row says otherwise."),
        "",
        "| row | what | compared with | ratio | goal | limit | met |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in shown:
        limit = by_id.get(SHOWN[row.id])
        cells = [row.id, what(row, rounds), row.against, show(row.ratio), row.goal_text]
        lines.append(f"| {' | '.join(cells)} | {show(limit.ratio) if limit else ''} | {verdict(row)} |")
    return [*lines, "", "![Each ratio relative to its goal](performance.svg)"]


def of_lines(rows):
    """Returns a table of the rows whose figures form one line each."""
    if not rows:
        return []
    names = [figure.name for figure in max(rows, key=lambda row: len(row.figures)).figures]
    lines = ["", f"| row | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for row in rows:
        cells = [show(figure.median) for figure in row.figures]
        lines.append(f"| {row.id} | {' | '.join(cells + [''] * (len(names) - len(cells)))} |")
    return lines


def full(rows, described, rounds):
    """Returns bench/results.md: all rows and figures of a run."""
    lines = [
        "# Results of the last complete run",
        "",
        "Written by `make bench-docs`; [Performance](../docs/performance.md) explains the rows.",
        "",
        prose(
            f"{machine.in_words(described)}. Medians of {rounds} rounds, unless the row says otherwise; minimum and "
            "maximum in parentheses."
        ),
        "",
        "| row | what | compared with | ratio | goal | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.id} | {what(row, rounds)} | {row.against} | {show(row.ratio)} | {row.goal_text} | {verdict(row)} |"
        for row in rows
    ]
    lines += ["", "| row | measured | |", "| --- | --- | --- |"]
    lines += [
        f"| {row.id} | {figure.label} | {figure.text()} |" for row in rows if not row.is_line for figure in row.figures
    ]
    lines += of_lines([row for row in rows if row.is_line])
    notes = [f"{row.id}: {row.note}." for row in rows if row.note]
    return "\n".join([*lines, "", prose(" ".join(notes)), ""])


def prose(text):
    """Wraps a paragraph at the line length of the documents."""
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)

"""The outcome of a run: a table to read, JSON to keep, and the part of docs/performance.md that shows it."""

import json
import os
import re
import textwrap

from figures import Figure, Row, show
import machine
import plot
from rows.floods import FLOODS

#: What every run has to have, "P4 cores" aside, which a machine with one core lacks. A run without one of them has
#: failed, whatever the others say.
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
    "P7 again",
    "P8 tree",
    "P11 eviction",
    "P11 revalidation",
    "P11 start",
    "P13 cache",
    "B1",
    "B2",
]
#: And those that take the accounts of others, or a look at the memory of an unreadable process, which root alone has.
EXPECTED_OF_ROOT = [
    f"P12 {name}"
    for name in [flood.name for flood in FLOODS]
    + ["quiet", "limit", "limit, 1 core", "limit, all cores", "limit, disk"]
] + ["B3"]
#: The tables of performance.md, each between two marks that bear its name, with a plot of that name beside it. A run
#: of some rows alone (`--only`) writes the tables that it has all rows of.
TABLES = ("performance", "performance-more")


def table_of(id):
    """The client library, events and renditions have a table of their own: they have other peers."""
    return TABLES[1] if id.startswith(("P13", "P14", "R")) else TABLES[0]


def missing(rows, tables=TABLES):
    expected = EXPECTED + (EXPECTED_OF_ROOT if os.geteuid() == 0 else [])
    return [id for id in expected if table_of(id) in tables and id not in {row.id for row in rows}]


def verdict(row):
    if row.met is None or row.met:
        return "" if row.met is None else "yes"
    return f"no: {row.missed}" if row.missed and row.reaches_ratio else "no"


def what(row, rounds):
    """What a row is about, and its number of rounds where that is not the run's."""
    return row.what if row.rounds == rounds else f"{row.what} ({row.rounds} round{'' if row.rounds == 1 else 's'})"


def table(rows, rounds):
    lines = [("", "what", "against", "ratio", "goal", "met")]
    lines += [(row.id, what(row, rounds), row.against, show(row.ratio), row.goal_text, verdict(row)) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def details(row):
    if row.is_line:
        return f"{row.id}: " + ", ".join(f"{figure.name} {show(figure.median)}" for figure in row.figures)
    return "\n".join([f"{row.id}: {row.what}"] + [f"    {figure.name}: {figure.text()}" for figure in row.figures])


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
                            {"name": figure.name, "unit": figure.unit, "median": figure.median, "values": figure.values}
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
            [Figure(figure["name"], figure["unit"], figure["values"]) for figure in row["figures"]],
            row["note"],
            row["missed"],
            row.get("is_line", False),
        )
        for row in kept["rows"]
    ]
    return rows, kept["machine"], kept["rounds"]


def write_document(directory, rows, described, rounds):
    """Puts each table that is whole into performance.md between its two marks, and the plot beside it."""
    document = directory / "performance.md"
    for name in TABLES:
        if lacking := missing(rows, [name]):
            print(f"bench: the table {name} stays as it is: no figures for {', '.join(lacking)}")
            continue
        its = [row for row in rows if table_of(row.id) == name]
        (directory / f"{name}.svg").write_text(plot.svg(its))
        begin, end = (f"<!-- {place}: written by make bench: {name} -->" for place in ("begin", "end"))
        text = document.read_text()
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{document} has to hold each of the marks {begin} and {end} once")
        part = f"{begin}\n{markdown(name, its, described, rounds)}\n{end}"
        document.write_text(re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: part, text, flags=re.DOTALL))


def of_lines(rows):
    """A table of rows that have the same figures, or the first of them."""
    if not rows:
        return []
    names = [figure.name for figure in max(rows, key=lambda row: len(row.figures)).figures]
    lines = ["", f"| # | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for row in rows:
        cells = [show(figure.median) for figure in row.figures]
        lines.append(f"| {row.id} | {' | '.join(cells + [''] * (len(names) - len(cells)))} |")
    return lines


def markdown(name, rows, described, rounds):
    lines = [
        prose(
            f"{machine.in_words(described)}. Medians of {rounds} rounds, or of as many as the row says, "
            "lowest and highest in brackets."
        ),
        "",
        f"![Each row's ratio against its goal]({name}.svg)",
        "",
        "| # | what | against | ratio | goal | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.id} | {what(row, rounds)} | {row.against} | {show(row.ratio)} | {row.goal_text} | {verdict(row)} |"
        for row in rows
    ]
    lines += ["", "| # | measured | |", "| --- | --- | --- |"]
    lines += [
        f"| {row.id} | {figure.name} | {figure.text()} |" for row in rows if not row.is_line for figure in row.figures
    ]
    lines += of_lines([row for row in rows if row.is_line])
    notes = [f"{row.id}: {row.note}." for row in rows if row.note]
    return "\n".join(lines + ["", prose(" ".join(notes))])


def prose(text):
    """As wide as a document's lines are."""
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)

"""Reports of fleet/tools/fleet-scale: a table for the terminal, a section of fleet/docs/fleet.md, and its plot."""

import html
import math
import re
import statistics
import textwrap

from figures import show

BEGIN, END = "<!-- begin: written by make fleet-scale -->", "<!-- end: written by make fleet-scale -->"
COLOURS = {1: "#8a8a8a", 10: "#2f7d4f", 100: "#b5452c"}


def medians(found):
    """The median of every figure for each number of relays and each rate, in the order of the runs."""
    groups = {}
    for run in found["runs"]:
        groups.setdefault((run["relays"], run["rate"]), []).append(run)
    return [
        {name: statistics.median(run[name] for run in runs) for name in runs[0] if name != "commands"}
        | {"spread": [f(run["last_p50"] for run in runs) for f in (min, max)]}
        for runs in groups.values()
    ]


def is_burst(row):
    return row["rate"] > 1000


def at(rows, relays, rate):
    return next((row for row in rows if row["relays"] == relays and row["rate"] == rate), None)


def cells(row):
    is_quiet = row["rate"] == 0
    return [
        f"{row['relays']:,}",
        "none" if is_quiet else f"{row['rate']:g}",
        "" if is_quiet else f"{show(row['last_p50'])} ms ({' to '.join(show(value) for value in row['spread'])})",
        "" if is_quiet else f"{show(row['last_p99'])} ms",
        f"{row['server']:.0%}",
        # With few turns, the measurement itself would dominate this figure.
        "" if is_quiet and row["relays"] < 1000 else f"{row['turn_us']:.0f}",
        f"{row['turns']:,.0f}",
        f"{row['simulator']:.0%}",
        f"{row['others']:.0%}",
    ]


HEAD = [
    "relays", "logouts/s", "last acknowledgment: median", "99th percentile", "server CPU", "µs per turn", "turns/s",
    "simulator CPU", "other CPU",
]


def table(found):
    lines = [HEAD] + [cells(row) for row in medians(found) if not is_burst(row)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def compact(rows):
    """A row for each number of relays: median and 99th percentile for each rate, and the server's CPU time."""
    rates = sorted({row["rate"] for row in rows if not is_burst(row)})
    lines = [
        ["relays"] + [f"{rate:g} logout{'' if rate == 1 else 's'}/s" for rate in rates if rate]
        + [f"server CPU at {', '.join(f'{rate:g}' for rate in rates)} logouts/s"]
    ]
    for relays in sorted({row["relays"] for row in rows if not is_burst(row)}):
        measured = [row for rate in rates if (row := at(rows, relays, rate))]
        lines.append(
            [f"{relays:,}"]
            + [f"{show(row['last_p50'])} ms ({show(row['last_p99'])} ms)" for row in measured if row["rate"]]
            + [", ".join(f"{row['server']:.0%}" for row in measured)]
        )
    return lines


def markdown(found):
    rows = medians(found)
    place = found["machine"]
    head, *lines = compact(rows)
    busy = max(row["others"] for row in rows)
    parts = [
        prose(
            f"{place['cpu']}, {place['cores']} cores; {place['system']}; redis {found['redis']} on loopback, without "
            f"TLS and persistence; heartbeats of 5 s. Time until the last relay acknowledges a logout: median and, in "
            f"parentheses, 99th percentile; medians of {found['rounds']} rounds of {found['seconds']:g} s. Other "
            f"programs used up to {busy:.1f} cores, which lengthens times, but not CPU times."
        ),
        "![Time until the last acknowledgment and CPU time of the server, by number of relays](fleet-scale.svg)",
        "\n".join([f"| {' | '.join(head)} |", "|" + " --- |" * len(head)] + [f"| {' | '.join(line)} |" for line in lines]),
    ]
    for row in rows:
        if is_burst(row):
            parts.append(prose(
                f"{row['relays']:,} relays that were {row['entries']:,.0f} logouts behind received "
                f"{row['entries'] * row['relays'] / row['seconds']:,.0f} entries per second together. Each took "
                f"{show(row['delivery_us'])} µs of the server's CPU time."
            ))
    entry, host = found["memory"]["bytes"], statistics.median(run["host_bytes"] for run in found["runs"])
    week = entry * 100 * 86_400 * 7
    rate, daemon, relay = (
        statistics.median(host[name] for host in found["host"]) for name in ("rate", "daemon_us", "relay_us")
    )
    parts.append(prose(
        f"An entry takes {show(entry)} bytes of the server's memory, a host {show(host)} bytes. 100 logouts per second "
        f"for the seven days of `keep` take {show(week / 2**30)} GiB. A real relay with its daemon processes "
        f"{show(rate)} logouts per second of users that are not logged in; each takes {show(daemon)} µs of the "
        f"daemon's CPU time and {show(relay)} µs of the relay's."
    ))
    return "\n\n".join(parts)


def prose(text):
    """Wraps text at the width of the documents."""
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)


def write(directory, found):
    """Replaces the section of fleet.md between the two marks, and the plot beside it."""
    (directory / "fleet-scale.svg").write_text(svg(medians(found)))
    document = directory / "fleet.md"
    text = document.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{document}: the marks {BEGIN} and {END} must each occur once")
    part = f"{BEGIN}\n{markdown(found)}\n{END}"
    document.write_text(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: part, text, flags=re.DOTALL))


# The plot.

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 430, 300, 56, 30, 44, 84


def svg(rows):
    """Two panels over the number of relays, with logarithmic axes: time and CPU time."""
    rows = [row for row in rows if not is_burst(row) and row["rate"]]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {TOP + HEIGHT + GAP}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    parts += panel(rows, 0, "time until the last relay acknowledges a logout, ms", 1, 10_000, [
        ("last_p50", 1, ""), ("last_p99", 1, "5 4")])
    parts += panel(rows, WIDTH, "CPU time of the server, percent of a core", 0.1, 100, [("server", 100, "")])
    y = TOP + HEIGHT + GAP - 32
    for number, (rate, colour) in enumerate(COLOURS.items()):
        x = LEFT + number * 180
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{rate} logout{"" if rate == 1 else "s"} per second</text>')
    parts.append(f'<text x="{LEFT + 3 * 180}" y="{y}" fill="#555555">dashed: 99th percentile</text>')
    parts.append(
        f'<text x="{2 * WIDTH - RIGHT}" y="{y + 22}" text-anchor="end" fill="#555555">written by make fleet-scale</text>'
        "</svg>"
    )
    return "\n".join(parts) + "\n"


def panel(rows, offset, title, low, high, lines):
    fewest, most = (f(row["relays"] for row in rows) for f in (min, max))
    left, width = offset + LEFT, WIDTH - LEFT - RIGHT

    def place(relays, value):
        across = math.log(relays / fewest) / max(math.log(most / fewest), 1e-9)
        up = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return left + across * width, TOP + (1 - up) * HEIGHT

    parts = [f'<text x="{left}" y="{TOP - 16}" fill="#555555">{html.escape(title)}</text>']
    value = low
    while value <= high:
        _, y = place(fewest, value)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">{value:,g}</text>'
        )
        value = round(value * 10, 6)
    for relays in sorted({row["relays"] for row in rows}):
        x, _ = place(relays, low)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + HEIGHT}" stroke="#dddddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle" fill="#555555">{relays:,}</text>'
        )
    parts.append(
        f'<text x="{left + width}" y="{TOP + HEIGHT + 32}" text-anchor="end" fill="#555555">relays</text>'
    )
    for rate, colour in COLOURS.items():
        chosen = sorted((row for row in rows if row["rate"] == rate), key=lambda row: row["relays"])
        for name, scale, dashes in lines:
            points = [place(row["relays"], row[name] * scale) for row in chosen]
            style = f' stroke-dasharray="{dashes}"' if dashes else ""
            parts.append(
                f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" '
                f'stroke="{colour}" stroke-width="2"{style}/>'
            )
            if not dashes:
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return parts

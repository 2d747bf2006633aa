"""What fleet/tools/fleet-scale has measured: a table to read, the part of fleet/docs/fleet.md that shows it, and its plot."""

import html
import math
import re
import statistics
import textwrap

from figures import show

BEGIN, END = "<!-- begin: written by make fleet-scale -->", "<!-- end: written by make fleet-scale -->"
COLOURS = {1: "#8a8a8a", 10: "#2f7d4f", 100: "#b5452c"}


def medians(found):
    """For each number of relays and each rate the median of every figure, in the order in which they were run."""
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
        # Of a few turns it would be the cost of being looked at.
        "" if is_quiet and row["relays"] < 1000 else f"{row['turn_us']:.0f}",
        f"{row['turns']:,.0f}",
        f"{row['player']:.0%}",
        f"{row['others']:.0%}",
    ]


HEAD = [
    "relays", "log-outs a second", "until the last has it: median", "99th percentile", "the server's core",
    "µs of it for a turn", "turns a second", "the player", "others",
]


def table(found):
    lines = [HEAD] + [cells(row) for row in medians(found) if not is_burst(row)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def per_command(found):
    """µs of the server's time inside of each command, where its time is not spent on sockets."""
    runs = [run for run in found["runs"] if run["relays"] == 1000 and run["rate"] == 10] or found["runs"]
    names = ["xread", "xrange", "xinfo|stream", "hset", "hget", "get", "time", "multi", "exec"]
    costs = {}
    for name in names:
        both = [run["commands"][name] for run in runs if name in run["commands"]]
        if both:
            costs[name] = statistics.median(spent / max(count, 1) for count, spent in both)
    return costs


def markdown(found):
    rows = medians(found)
    place = found["machine"]
    lines = [
        prose(
            f"{place['cpu']}, {place['cores']} cores; {place['system']}; redis {found['redis']} on loopback, without "
            f"TLS and without persistence; heartbeats of 5 s. Medians of {found['rounds']} rounds of "
            f"{found['seconds']:g} s, lowest and highest in brackets. *The player* is the program that plays all "
            "relays, *others* whoever was busy on the machine besides, both in cores: where others took a core and "
            "more, times are longer than on a machine of one's own, and what a turn costs is not."
        ),
        "",
        "![How long log-outs take, and what they cost the server, by the number of relays](fleet-scale.svg)",
        "",
        f"| {' | '.join(HEAD)} |",
        "|" + " --- |" * len(HEAD),
    ]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows if not is_burst(row)]
    costs = ", ".join(f"{name.upper()} {cost:.1f}" for name, cost in per_command(found).items())
    lines += ["", prose(
        f"The server spends this inside commands, in µs: {costs}. EXEC is with what it runs. The rest of a turn is reading "
        "and writing."
    )]
    for row in rows:
        if is_burst(row):
            lines += ["", prose(
                f"{row['relays']:,} relays caught up with {row['entries']:,.0f} log-outs. The server "
                f"gave out {row['entries'] * row['relays'] / row['seconds']:,.0f} a second to all of them together, "
                f"for {show(row['delivery_us'])} µs of its time each: a hundred to a turn."
            )]
    entry, host = found["memory"]["bytes"], statistics.median(run["host_bytes"] for run in found["runs"])
    day = entry * 100 * 86_400
    lines += ["", prose(
        f"An entry takes {show(entry)} bytes of the server's memory (MEMORY USAGE of "
        f"{found['memory']['entries']:,} log-outs), and a host {show(host)} in the table. "
        f"Reckoned from that, 100 log-outs a second are {show(day / 2**20)} MiB a day, and "
        f"{show(day * 7 / 2**30)} GiB in the seven days of `keep`."
    )]
    rate, daemon, relay = (
        statistics.median(host[name] for host in found["host"]) for name in ("rate", "daemon_us", "relay_us")
    )
    lines += ["", prose(
        f"A real relay and daemon catch up with {show(rate)} log-outs a second of people who are not there, for "
        f"{show(daemon)} µs of the daemon's time and {show(relay)} of the relay's each."
    )]
    return "\n".join(lines)


def prose(text):
    """As wide as a document's lines are."""
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)


def write(directory, found):
    """Puts the table into fleet.md between its two marks, and the plot beside it."""
    (directory / "fleet-scale.svg").write_text(svg(medians(found)))
    document = directory / "fleet.md"
    text = document.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{document} has to hold each of the marks {BEGIN} and {END} once")
    part = f"{BEGIN}\n{markdown(found)}\n{END}"
    document.write_text(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: part, text, flags=re.DOTALL))


# The plot.

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 430, 300, 56, 30, 44, 84


def svg(rows):
    """Two panels over the number of relays, all axes logarithmic: how long, and at what cost."""
    rows = [row for row in rows if not is_burst(row) and row["rate"]]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {TOP + HEIGHT + GAP}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    parts += panel(rows, 0, "until the last relay has a log-out, ms", 1, 10_000, [
        ("last_p50", 1, ""), ("last_p99", 1, "5 4")])
    parts += panel(rows, WIDTH, "the server, percent of a core", 0.1, 100, [("server", 100, "")])
    y = TOP + HEIGHT + GAP - 32
    for number, (rate, colour) in enumerate(COLOURS.items()):
        x = LEFT + number * 180
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{rate} log-out{"" if rate == 1 else "s"} a second</text>')
    parts.append(f'<text x="{LEFT + 3 * 180}" y="{y}" fill="#555555">dashed: the 99th percentile</text>')
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

"""Plots a run as SVG: for each row, the ratio relative to its goal."""

import html
import math

from figures import show

# Wide enough for row names and goals in common fonts.
WIDTH, LINE, LEFT, RIGHT, TOP = 940, 26, 370, 150, 44
GOOD, BAD, PLAIN = "#2f7d4f", "#b5452c", "#8a8a8a"
#: The axis extends from a tenth of the goal to ten times the goal.
DECADES = 1.0


def advantage(row):
    """Returns how many times better than its goal a row is, or than its peer if it has no goal."""
    value = row.ratio / (row.goal or 1)
    return value if row.more_is_better else 1 / max(value, 1e-9)


def svg(rows):
    height = TOP + LINE * len(rows) + 30
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    half = (WIDTH - LEFT - RIGHT) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{middle}" y="18" text-anchor="middle">times better than the goal (the line is the goal)</text>',
    ]
    for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        x = middle + math.log10(factor) / DECADES * half
        color = "#222222" if factor == 1 else "#dddddd"
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 26}" stroke="{color}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{TOP - 10}" text-anchor="middle" fill="#555555">{show_factor(factor)}</text>'
        )
    for number, row in enumerate(rows):
        parts += bar(row, TOP + LINE * number, middle, half)
    parts.append(
        f'<text x="{WIDTH - 8}" y="{height - 8}" text-anchor="end" fill="#555555">written by make bench</text></svg>'
    )
    return "\n".join(parts) + "\n"


def show_factor(factor):
    return f"{factor:g}×"


def bar(row, y, middle, half):
    reach = max(-1.0, min(1.0, math.log10(max(advantage(row), 1e-9)) / DECADES)) * half
    color = {None: PLAIN, True: GOOD, False: BAD}[row.met]
    name = html.escape(f"{row.id}: {row.what}")
    name = name if len(name) <= 54 else name[:52] + "…"
    goal = f" (goal {html.escape(row.goal_text)})" if row.goal is not None else ""
    return [
        f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{name}</text>',
        f'<rect x="{min(middle, middle + reach):.1f}" y="{y + 5}" width="{max(abs(reach), 1):.1f}" '
        f'height="16" fill="{color}"/>',
        f'<text x="{WIDTH - RIGHT + 6}" y="{y + 17}">{show(row.ratio)}{goal}</text>',
    ]


#: Color and dashes of each line of a growth plot.
LINES = {
    "thumbcached": (GOOD, "none"),
    "thumbcached, tier off": (GOOD, "6 4"),
    "redis-server": (BAD, "none"),
    "nginx proxy_cache": (PLAIN, "none"),
}
PANEL_WIDTH, PANEL_HEIGHT, PANEL_LEFT, PANEL_TOP = 380, 220, 70, 56


def growth(row, axis):
    """Draws the rate and the memory against the row's axis; all scales are logarithmic."""
    height = PANEL_TOP + PANEL_HEIGHT + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, (color, dashes)) in enumerate(LINES.items()):
        x = PANEL_LEFT + 210 * number
        parts.append(polyline([(x, 14), (x + 30, 14)], color, dashes))
        parts.append(f'<text x="{x + 36}" y="18">{name}</text>')
    for left, unit, title in (
        (PANEL_LEFT, "requests/s", "requests per second"),
        (WIDTH - PANEL_WIDTH - 40, "MiB", "memory of all processes, MiB"),
    ):
        figures = [figure for figure in row.figures if figure.unit == unit]
        parts += panel(left, title, figures, axis)
    parts.append(
        f'<text x="{WIDTH - 8}" y="{height - 8}" text-anchor="end" fill="#555555">written by make bench</text></svg>'
    )
    return "\n".join(parts) + "\n"


def panel(left, title, figures, axis):
    bottom, right = PANEL_TOP + PANEL_HEIGHT, left + PANEL_WIDTH
    places, marks = sorted({figure.at for figure in figures}), ticks([figure.median for figure in figures])

    def x(at):
        return left + PANEL_WIDTH * math.log(at / places[0]) / math.log(places[-1] / places[0])

    def y(value):
        return bottom - PANEL_HEIGHT * math.log(value / marks[0]) / math.log(marks[-1] / marks[0])

    label = "image size" if axis == "size" else axis
    parts = [
        f'<text x="{left}" y="{PANEL_TOP - 12}">{title}</text>',
        f'<text x="{(left + right) / 2}" y="{bottom + 36}" text-anchor="middle" fill="#555555">{label}</text>',
    ]
    for mark in marks:
        parts.append(f'<line x1="{left}" y1="{y(mark):.1f}" x2="{right}" y2="{y(mark):.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(mark) + 4:.1f}" text-anchor="end" fill="#555555">{mark:,}</text>')
    for at in places:
        text = f"{at:,}" if axis != "size" else f"{at >> 10} KiB" if at < 1 << 20 else f"{at >> 20} MiB"
        parts.append(f'<line x1="{x(at):.1f}" y1="{PANEL_TOP}" x2="{x(at):.1f}" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x(at):.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555555">{text}</text>')
    for name, (color, dashes) in LINES.items():
        points = [(x(figure.at), y(figure.median)) for figure in figures if figure.name == name]
        parts.append(polyline(points, color, dashes))
    return parts


def polyline(points, color, dashes):
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"/>'


def ticks(values):
    """Returns the scale's marks: 1, 2 and 5 times powers of ten, from at most the least value to above the largest."""
    steps = [factor * 10**power for power in range(7) for factor in (1, 2, 5)]
    least = max(step for step in steps if step <= min(values))
    most = min(step for step in steps if step > max(values))
    return [step for step in steps if least <= step <= most]

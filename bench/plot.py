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

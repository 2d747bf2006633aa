"""Results of a run: measured values with their spread, and rows that compare them."""

import dataclasses
import statistics


@dataclasses.dataclass
class Figure:
    """A measured quantity, with its value in each round."""

    name: str
    unit: str
    values: list
    #: Where it was measured on the axis of a plot, if the row has one.
    at: int = None

    @property
    def label(self):
        return self.name if self.at is None else f"{self.name}, {self.at:,}"

    @property
    def median(self):
        return statistics.median(self.values)

    def text(self):
        return f"{show(self.median)} {self.unit} ({show(min(self.values))} to {show(max(self.values))})"


@dataclasses.dataclass
class Row:
    """A row of the table: a ratio, and the goal for it, if any."""

    id: str
    what: str
    against: str
    ratio: float
    goal: float = None
    #: Whether a larger ratio is better.
    more_is_better: bool = True
    figures: list = dataclasses.field(default_factory=list)
    note: str = ""
    #: Why the goal is missed although the ratio reaches it; empty if there is no other condition or it is met.
    missed: str = ""
    #: Whether the figures form one line of a table instead of one line each.
    is_line: bool = False

    @property
    def rounds(self):
        """The number of rounds: the smallest number of values of a figure."""
        return min((len(figure.values) for figure in self.figures), default=0)

    @property
    def met(self):
        if self.goal is None:
            return None
        return not self.missed and self.reaches_ratio

    @property
    def reaches_ratio(self):
        return self.ratio >= self.goal if self.more_is_better else self.ratio <= self.goal

    @property
    def goal_text(self):
        return "" if self.goal is None else f"{'≥' if self.more_is_better else '≤'} {show(self.goal)}"


def show(value):
    """Formats a number with three significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(mine, other):
    return mine.median / other.median


class Run:
    """The parameters that all rows share: directory, programs, rounds, and amount of work."""

    def __init__(self, home, subject, rounds, is_quick):
        self.home = home
        self.subject = subject
        self.rounds = rounds
        self.is_quick = is_quick

    def scaled(self, amount, quick):
        """Returns the amount of work, or the smaller one in a quick run."""
        return quick if self.is_quick else amount

    @property
    def few_rounds(self):
        """The number of rounds for rows with a slow setup."""
        return min(self.rounds, 3)

    def alternate(self, things, rounds=None):
        """Calls each `(name, call)` once per round, in alternating order. Returns `{name: [results]}`."""
        results = {name: [] for name, _ in things}
        for number in range(rounds or self.rounds):
            for name, call in things if number % 2 == 0 else reversed(things):
                results[name].append(call())
        return results

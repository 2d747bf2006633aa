"""What a run has found out: figures with their spread, and rows that hold them against each other."""

import dataclasses
import statistics


@dataclasses.dataclass
class Figure:
    """What was measured of one thing, in every round."""

    name: str
    unit: str
    values: list

    @property
    def median(self):
        return statistics.median(self.values)

    def text(self):
        return f"{show(self.median)} {self.unit} ({show(min(self.values))} to {show(max(self.values))})"


@dataclasses.dataclass
class Row:
    """One line of the table: a ratio, and whether it reaches the goal. Without a goal it is there to be looked at."""

    id: str
    what: str
    against: str
    ratio: float
    goal: float = None
    #: Whether a larger ratio is better.
    more_is_better: bool = True
    figures: list = dataclasses.field(default_factory=list)
    note: str = ""
    #: The further condition of the goal that the run misses, for the table; empty if it meets all.
    missed: str = ""
    #: Whether its figures make one line of a table, beside those of its like.
    is_line: bool = False

    @property
    def rounds(self):
        """How many rounds are behind it: as many as its rarest figure has values."""
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
    """A number as people write it: three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(mine, other):
    return mine.median / other.median


class Run:
    """What every row needs to know: where to work, how often, and how much of everything."""

    def __init__(self, home, subject, rounds, is_quick):
        self.home = home
        self.subject = subject
        self.rounds = rounds
        self.is_quick = is_quick

    def scaled(self, amount, quick):
        """An amount of work, or the small one of a quick run."""
        return quick if self.is_quick else amount

    @property
    def few_rounds(self):
        """How often a row is measured that takes long to set up."""
        return min(self.rounds, 3)

    def alternate(self, things, rounds=None):
        """Every thing once in each round, in turns forwards and backwards: `(name, call)` to `{name: [results]}`."""
        results = {name: [] for name, _ in things}
        for number in range(rounds or self.rounds):
            for name, call in things if number % 2 == 0 else reversed(things):
                results[name].append(call())
        return results

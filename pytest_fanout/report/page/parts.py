"""What the page's templates are given: frozen, in the order in which it is shown. Texts are plain, nothing escaped."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as texts. The first ``words`` columns hold words, the others figures, which stand at the right.

    ``place``: where its figures stand in the page's data, as a JSON pointer (RFC 6901).
    """

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    place: str
    words: int = 1
    more: str = ""  # what is not in it, and where it is
    marked: frozenset[int] = frozenset()  # rows that are over a limit


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with what it shows in words, and its numbers as a table."""

    title: str
    svg: Markup
    text: str
    table: Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the large figures of the first screen."""

    name: str
    what: str  # it counts
    base: str
    run: str
    change: str
    limit: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What can be done next. ``word``: next, or, then."""

    word: str
    text: str
    is_command: bool


@dataclass(frozen=True, slots=True)
class Hero:
    """The first screen: red or green, which class, how much, why, what it costs, what to do."""

    tone: str  # good bad warn
    words: str
    code: str
    reason: str
    agent: str
    figures: tuple[Figure, ...]
    why: tuple[str, ...]
    cost: tuple[str, ...]
    steps: tuple[Step, ...]
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A finding of the explanation, whole."""

    label: str
    text: str
    shares: tuple[str, ...]
    detail: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallCell:
    """One call of a tree."""

    depth: int
    label: str
    note: str  # how it follows, and the tools whose results it carries
    tokens: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The calls of one task, base and run side by side; ``parts_at`` from 1, 0 where they do not part. ``place``: as of
    a table."""

    task: str
    trials: str
    text: str
    parts_at: int
    rows: tuple[tuple[CallCell | None, CallCell | None], ...]
    more: str
    place: str


@dataclass(frozen=True, slots=True)
class ClassPart:
    """All of one agent class."""

    key: str
    name: str
    tone: str
    outcome: str
    verdict: str
    is_open: bool
    reason: str
    texts: tuple[str, ...]
    metrics: Table
    curves: tuple[Picture, ...]
    why: str
    found: tuple[Told, ...]
    notes: tuple[str, ...]
    waterfalls: tuple[Picture, ...]
    sites: Table | None
    trees: tuple[Tree, ...]
    tasks: Table | None
    trends: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class CapacityPart:
    """What it costs."""

    lines: tuple[str, ...]
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PagePart:
    """The whole page."""

    title: str
    hero: Hero
    commits: tuple[tuple[str, str], ...]
    overview: Table | None
    problems: tuple[str, ...]
    is_measured: bool
    classes: tuple[ClassPart, ...]
    capacity: CapacityPart | None
    notices: tuple[str, ...]
    measured: tuple[str, ...]
    data: Markup

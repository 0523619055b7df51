"""Why a class grew: what each of its calls said and cost, and what the growth is made of."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Visit:
    """One model call of a trial, as it is explained. Token counts are those of its last attempt; None: not known."""

    api: str
    model: str | None
    system: str
    turns: tuple[tuple[str, str], ...]  # role (user, assistant, result) and text, as sent
    tools: tuple[tuple[str, str], ...]  # name and definition
    settings: tuple[tuple[str, str], ...]  # name and value as JSON
    request: str  # digest of URL and body: alike where the same was asked
    kind: str  # begun turn repeated again reasked (see explain/visits.py)
    name: str | None = None  # of call_site()
    sdk: str | None = None
    served: str | None = None  # the model that answered
    after: tuple[str, ...] = ()  # tools whose results it is the first to carry
    follows: int | None = None  # index of the call whose conversation it goes on with
    has_server_state: bool = False
    attempts: int = 1
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    retry_tokens: int | None = 0  # of the attempts before the last
    started_ms: int = 0
    ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class VisitedTrial:
    """The calls of one trial in order of sending. ``timed`` False: their times are placeholders."""

    task: str
    trial: int
    visits: tuple[Visit, ...]
    timed: bool = True
    refused_attempts: int = 0  # of calls that no model answered
    version: str | None = None  # of pytest-fanout, that recorded it


@dataclass(frozen=True, slots=True)
class ClassTotal:
    """One metric of a class, its mean over the tasks of a scope. Exact: the parts of it add up to ``delta``."""

    metric: str  # fanout attempts tokens uncached_tokens
    scope: str  # mean (all tasks), p95 (the tasks at or above the run's p95, on both sides)
    base: Fraction
    run: Fraction
    tasks: tuple[str, ...]  # of the scope

    @property
    def delta(self) -> Fraction:
        return self.run - self.base


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a delta: what grew, and at which call site."""

    metric: str
    scope: str
    kind: str  # see explain/parts.py
    site: str | None  # key of an ExplainedSite; None: of no site
    value: Fraction
    after: tuple[str, ...] = ()  # of kind turn: the tools whose results these calls carry


@dataclass(frozen=True, slots=True)
class ExplainedSite:
    """A call site on both sides. ``state``: same, changed, new, gone; figures are means per task."""

    key: str
    label: str
    state: str
    api: str
    models_base: tuple[str, ...]
    models_run: tuple[str, ...]
    calls_base: Fraction
    calls_run: Fraction
    tokens_base: Fraction | None
    tokens_run: Fraction | None


@dataclass(frozen=True, slots=True)
class Share:
    """What of a delta a finding accounts for: in the metric's unit, and as a part of the whole (1 is all of it)."""

    metric: str
    scope: str
    value: Fraction
    share: Fraction | None  # None: the whole did not move


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that changed, or that calls do now, with the growth that it carries and its evidence."""

    kind: str  # prompt tools model settings api sdk plugin evalset, or that of a part that no request explains
    label: str  # "observed", "also changed"
    text: str  # one line
    sites: tuple[str, ...] = ()  # where it is
    reaches: tuple[str, ...] = ()  # sites called after those, whose growth it carries
    detail: tuple[str, ...] = ()  # lines of a unified diff, or of a definition
    places: tuple[str, ...] = ()  # path:line of the git diff that carry the changed text
    shares: tuple[Share, ...] = ()
    beside: tuple[str, ...] = ()  # kinds that changed at the same site, among which its share is split evenly


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One call in the tree of a trial; ``depth``: inside how many conversations it was made."""

    depth: int
    site: str
    label: str
    kind: str
    tools: tuple[str, ...]  # results that it carries
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Example:
    """A task that grew, one trial of each side: its calls as a tree, and the first one that differs (from 1)."""

    task: str
    trial_base: int
    trial_run: int
    base: tuple[TreeLine, ...]
    run: tuple[TreeLine, ...]
    parts_at: int | None  # None: the requests are alike
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one class moved. Its parts sum exactly to each total's delta; findings by share, largest first."""

    agent: str
    rule: str
    totals: tuple[ClassTotal, ...]
    parts: tuple[Part, ...]
    sites: tuple[ExplainedSite, ...]
    findings: tuple[Finding, ...]
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be told

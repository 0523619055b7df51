"""Call sites of one side, learned across the tasks of a class: values that differ by task are no other site."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_fanout.explain.templates import ALIKE, alikeness, bare, common, stable_words, without_values, words
from pytest_fanout.records import Visit, VisitedTrial
from pytest_fanout.wire.text import first_words

NO_PROMPT = "(no stable prompt)"
_FEWEST_WORDS = 3  # fewer in common say nothing
_MOST_TEMPLATES = 100  # of one frame: nobody writes so many prompts, what comes after them is input

#: What a site may not differ in: its name, its API, the tools that are offered, and whether it has a system prompt.
Frame = tuple[str | None, str, tuple[str, ...], bool]


@dataclass(slots=True)
class Site:
    """A call site of one side. ``visits``: (index of the trial, index of the visit), in order."""

    name: str | None
    api: str
    tools: tuple[str, ...]
    prompt: str  # the stable part of the system prompt, or of the first turn where there is none
    lead: tuple[tuple[str, str], ...] = ()  # turns before the question that are the same in all tasks
    visits: list[tuple[int, int]] = field(default_factory=list)
    has_system: bool = True

    @property
    def text(self) -> str:
        """All that is told the same each time, as lines to compare."""
        lead = self.lead if self.has_system else self.lead[1:]
        return "\n".join((self.prompt, *(f"{role}: {text}" for role, text in lead)))

    @property
    def label(self) -> str:
        return self.name or first_words(self.prompt, 60) or NO_PROMPT


@dataclass(slots=True)
class _Cluster:
    """Texts of one template."""

    template: list[str]
    tasks: set[str]
    texts: list[str]


@dataclass(slots=True)
class _Clusters:
    """Templates, and where their words stand: of thousands of prompts only those that may be alike are compared."""

    clusters: list[_Cluster] = field(default_factory=list)
    _places: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))  # word -> cluster -> times

    def nearest(self, parts: Sequence[str], tasks: set[str]) -> int | None:
        """The cluster that is most like a text, the first of several; None: none is alike enough."""
        own = Counter(bare(parts))
        shared: dict[int, int] = defaultdict(int)
        for word, times in own.items():
            for at, others in self._places.get(word, {}).items():
                shared[at] += min(times, others)
        # no more words can be alike than stand in both; without any word, two texts are alike
        near = [
            (alikeness(self.clusters[at].template, parts), -at)
            for at in (shared if own else range(len(self.clusters)))
            if 2 * shared[at] >= ALIKE * (len(parts) + len(self.clusters[at].template))
            and _may_be_values(self.clusters[at], tasks)
        ]
        score, place = max(near, default=(0.0, 0))
        return -place if score >= ALIKE else None

    def add(self, parts: list[str], tasks: set[str], text: str) -> None:
        """A template of its own."""
        self.clusters.append(_Cluster(parts, set(tasks), [text]))
        self._put(len(self.clusters) - 1)

    def join(self, at: int, parts: list[str], tasks: set[str], text: str) -> None:
        """One text more of a template."""
        cluster = self.clusters[at]
        cluster.tasks |= tasks
        cluster.texts.append(text)
        template = common(cluster.template, parts)
        if template != cluster.template:
            for word in set(bare(cluster.template)):
                del self._places[word][at]
            cluster.template = template
            self._put(at)

    def _put(self, at: int) -> None:
        for word, times in Counter(bare(self.clusters[at].template)).items():
            self._places[word][at] = times


def learn(trials: Sequence[VisitedTrial]) -> list[Site]:
    """The sites of one side, in the order in which they are first visited.

    A prompt that two tasks share word for word is a site. Prompts that are alike but for some words are one site, when
    no task has both: then the words are values. Prompts of one task only may also be values within it.
    """
    texts: dict[Frame, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for trial in trials:
        for visit in trial.visits:
            texts[_frame(visit)][_told(visit)].add(trial.task)
    is_one_task = len({trial.task for trial in trials}) < 2
    prompts = {frame: _templates(found, frame[3], is_one_task) for frame, found in sorted(texts.items(), key=repr)}
    sites: dict[tuple[Frame, str], Site] = {}
    for at, trial in enumerate(trials):
        for number, visit in enumerate(trial.visits):
            frame = _frame(visit)
            prompt = prompts[frame][_told(visit)]
            site = sites.get((frame, prompt))
            if site is None:
                site = sites[frame, prompt] = Site(*frame[:3], prompt, has_system=frame[3])
            site.visits.append((at, number))
    for site in sites.values():
        site.lead = _lead(site, trials)
    return sorted(sites.values(), key=lambda site: (place_of(site), site.text, site.tools, site.api))


def _frame(visit: Visit) -> Frame:
    return visit.name, visit.api, tuple(sorted({name for name, _ in visit.tools})), bool(visit.system)


def _told(visit: Visit) -> str:
    """What names the site: the system prompt, or without one what stands first."""
    return without_values(visit.system or (visit.turns[0][1] if visit.turns else ""))


def _templates(texts: Mapping[str, set[str]], has_system: bool, is_one_task: bool) -> dict[str, str]:
    """The stable part of each text. What stands in one task only, and is no system prompt, is an input."""
    known = _Clusters()
    found: dict[str, str] = {}
    for text, tasks in sorted(texts.items(), key=lambda item: (-len(item[1]), item[0])):
        parts = words(text)
        best = None if is_one_task else known.nearest(parts, tasks)
        if best is not None:
            known.join(best, parts, tasks, text)
        elif len(known.clusters) < _MOST_TEMPLATES:
            known.add(parts, tasks, text)
        else:
            found[text] = ""
    for cluster in known.clusters:
        template = "".join(cluster.template)
        if len(cluster.texts) > 1:
            template = template.strip()
        is_input = not (has_system or is_one_task) and len(cluster.tasks) == 1 and len(texts) > 1
        if is_input or stable_words(cluster.template) < min(_FEWEST_WORDS, len(words(template))):
            template = ""
        found.update(dict.fromkeys(cluster.texts, template))
    return found


def _may_be_values(cluster: _Cluster, tasks: set[str]) -> bool:
    """Two prompts that one task has both are two sites, unless each was only seen there: then they are its own."""
    return cluster.tasks.isdisjoint(tasks) or (len(cluster.tasks) == 1 and cluster.tasks == tasks)


def _lead(site: Site, trials: Sequence[VisitedTrial]) -> tuple[tuple[str, str], ...]:
    """The turns at the start of its conversations that are alike in all tasks: worked examples, mostly."""
    begun = [trials[at].visits[number].turns for at, number in site.visits if trials[at].visits[number].follows is None]
    if len({trials[at].task for at, _ in site.visits}) < 2 or not begun:
        return ()
    lead = begun[0][:-1]
    for turns in begun[1:]:
        shared = next((at for at, (one, other) in enumerate(zip(lead, turns, strict=False)) if one != other), None)
        lead = lead[: min(len(lead), len(turns)) if shared is None else shared]
    return lead


def place_of(site: Site) -> float:
    """Where in the flow it is first visited, on average."""
    first: dict[int, int] = {}
    for at, number in site.visits:
        first.setdefault(at, number)
    return sum(first.values()) / len(first) if first else 0.0

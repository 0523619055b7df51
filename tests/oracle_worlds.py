"""Random small worlds for the gate: commits in memory, a budget, anchors, approvals, a run. One seed, one world."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

from gate_world import EVALSET, NOW, TODAY, make_run, sha, trial
from naive_gate import NaiveLimit, by_task, figure

from pytest_fanout.config import Settings
from pytest_fanout.gate import evaluate
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Approval, Base, Baseline, Change, Head, Run, TaskRun, Totals, Verdict
from pytest_fanout.store.approvals import approval_name, write_approval
from pytest_fanout.store.baselines import build_baseline, write_baseline
from pytest_fanout.store.git import Entry, Repository

BASE, HEAD = "b" * 40, "a" * 40
METRICS = ("fanout", "tokens", "tool_calls[search]", "rounds", "duration_ms")
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
ROOT = Path("/project")
#: The recordings lie elsewhere, so that nobody looks for them in git.
SETTINGS = Settings(ROOT, "pyproject.toml", ROOT / "baselines", Path("/recordings"), {})


@dataclass
class Shelf:
    """Two commits without git: what ``evaluate`` asks of a repository."""

    commits: Mapping[str, Mapping[str, bytes]]

    def resolve(self, rev: str) -> str | None:
        return rev if rev in self.commits else None

    def list(self, rev: str, folder: str) -> Mapping[str, Entry]:
        paths = {PurePosixPath(path): data for path, data in self.commits[rev].items()}
        return {
            path.name: Entry("100644", hashlib.sha256(data).hexdigest()[:40])
            for path, data in paths.items()
            if str(path.parent) == folder
        }

    def prefetch(self, rev: str, folder: str) -> None:
        """Nothing is slow here."""

    def read(self, rev: str, path: str) -> bytes | None:
        return self.commits[rev].get(path)

    def history(self, base: str, head: str, path: str) -> tuple[str, ...]:
        return ()


@dataclass
class Made:
    """What one seed makes. ``base`` and ``head`` are the runs that the anchors of the two commits were built from."""

    limits: tuple[NaiveLimit, ...]
    base: Run
    head: Run
    run: Run
    head_limits: tuple[NaiveLimit, ...] = ()
    judge: Mapping[str, str] = field(default_factory=dict)
    head_judge: Mapping[str, str] = field(default_factory=dict)
    is_looser: bool = False  # HEAD's budget
    approvals: tuple[Approval, ...] = ()
    spent: tuple[Approval, ...] = ()
    about: list[str] = field(default_factory=list)

    def anchor(self, side: str, agent: str = "support") -> Baseline:
        return build_baseline(getattr(self, side), agent)

    def files(self, side: str) -> dict[str, bytes]:
        limits = self.head_limits if side == "head" else self.limits
        lines = ["schema = 1", "[default.limits]", *(limit.toml() for limit in limits), "[default.judge]"]
        judge = self.head_judge if side == "head" else self.judge
        lines += [f"{key} = {said}" for key, said in judge.items()]
        found = {"baselines/budget.toml": "\n".join(lines).encode()}
        for agent in sorted({made.agent for made in getattr(self, side).tasks}):
            anchor = self.anchor(side, agent)
            found[f"baselines/{agent}.json"] = write_baseline(anchor, stats_of(anchor))
        for approval in (*self.spent, *(self.approvals if side == "head" else ())):
            found[f"baselines/approvals/{approval_name(approval)}"] = write_approval(approval)
        return found

    def judged(self, run: Run | None = None) -> Verdict:
        shelf = Shelf({BASE: self.files("base"), HEAD: self.files("head")})
        run = replace(run or self.run, base=Base(BASE, "test"), head=Head(HEAD))
        return evaluate(run, cast("Repository", shelf), SETTINGS, today=TODAY, now=NOW)


def samples_of(calls: int, tokens_each: int = 100, searches: int | None = None) -> dict[str, int | None]:
    return {
        "fanout": calls,
        "attempts": calls,
        "input_tokens": calls * tokens_each * 4 // 5,
        "output_tokens": calls * tokens_each // 5,
        "tool_calls[search]": calls // 2 if searches is None else searches,
        "rounds": calls,
        "duration_ms": 100 * calls,
    }


def one(task: str, number: int, calls: int, **changes: Any) -> TaskRun:
    made = trial("support", task, number, calls)
    samples = {**made.samples, **samples_of(calls)}
    samples |= changes.pop("samples", {})
    return replace(made, samples=samples, **changes)


def whole(trials: Sequence[TaskRun], **changes: Any) -> Run:
    """A run of one class whose eval set holds the tasks of these trials."""
    definitions = {made.task: made.definition or "" for made in trials}
    run = make_run({})
    run = replace(run, tasks=tuple(trials), definitions={"support": definitions})
    run = replace(run, session=replace(run.session, expected=len(definitions), collected=len(trials), ran=len(trials)))
    return replace(run, **changes)


def anew(made: TaskRun) -> TaskRun:
    return replace(made, new_draw=True, recording=sha(f"anew {made.task} {made.trial}"))


def times(made: TaskRun, factor: float, more: int = 0) -> TaskRun:
    """The trial with all its numbers multiplied."""
    return replace(
        made, samples={name: n if n is None else round(n * factor) + more * (n > 0) for name, n in made.samples.items()}
    )


def limit(chance: random.Random) -> NaiveLimit:
    if chance.random() < 0.12:
        return NaiveLimit(f"{chance.choice(('capped', 'failed'))}.share", chance.choice((0, 50)), chance.choice((0, 5)))
    metric = chance.choice(METRICS)
    unit = {"tokens": 100, "duration_ms": 100}.get(metric, 1)
    increase = chance.choice((0, 5, 10, 10, 10, 25, 50))
    most = chance.choice((None, None, None, None, None, 20 * unit, 60 * unit))
    return NaiveLimit(
        f"{metric}.{chance.choice(STATISTICS)}",
        increase if most is None or chance.random() < 0.7 else None,
        chance.choice((0, 1, 1, 2, 5)) * unit,
        most,
        chance.random() < 0.85,
    )


def rows(chance: random.Random, tasks: int, trials: int) -> list[TaskRun]:
    noise = chance.choice((0.0, 0.0, 0.1, 0.35, 0.7))
    made = []
    for place in range(tasks):
        level = chance.choice((1, 2, 4, chance.randint(1, 30)))
        for number in range(1, trials + 1):
            calls = max(1, round(level * 2.718 ** chance.gauss(0, noise)))
            made.append(one(f"t{place:02d}", number, calls * (chance.choice((1, 1, 1, 8)) if noise == 0.7 else 1)))
    return made


def ended(chance: random.Random, made: TaskRun, words: Sequence[str]) -> TaskRun:
    status = chance.choice(words)
    return replace(made, status=status, passed=False, capped="fanout" if status == "capped" else None)


def changed(chance: random.Random, trials: list[TaskRun], about: list[str]) -> list[TaskRun]:
    """The same trials, and what an edit of the agent makes of their numbers."""
    kind = chance.choice(("equal", "equal", "all", "some", "one more", "runaway", "tokens", "tool", "fewer"))
    about.append(kind)
    names = sorted({made.task for made in trials})
    some = set(chance.sample(names, chance.randint(1, len(names))))
    factor, target = chance.choice((1.05, 1.1, 1.2, 1.5, 2, 3, 12)), chance.choice(trials)

    def edit(made: TaskRun) -> TaskRun:
        match kind:
            case "all":
                return times(made, factor)
            case "some" if made.task in some:
                return times(made, factor)
            case "one more" if made.task in some:
                return times(made, 1, 1)
            case "runaway" if made is target:
                return times(made, 20)
            case "tokens" if made.task in some:
                wide = {k: round((made.samples[k] or 0) * factor) for k in ("input_tokens", "output_tokens")}
                return replace(made, samples={**made.samples, **wide})
            case "tool" if made.task in some:
                more = (made.samples["tool_calls[search]"] or 0) + chance.choice((1, 2))
                return replace(made, samples={**made.samples, "tool_calls[search]": more})
            case "fewer" if made.task in some:
                return replace(made, samples={**made.samples, **samples_of(max(1, (made.samples["fanout"] or 0) // 2))})
        return made

    return [edit(made) for made in trials]


def approval(chance: random.Random, world: Made, about: list[str]) -> None:
    kind = chance.choice(("right", "right", "low", "other class", "other eval set", "spent", "old", "waiver", "ended"))
    about.append(f"approval {kind}")
    ceilings = {}
    for entry in world.limits:
        most = max(figure(by_task(run.tasks), entry.name) for run in (world.head, world.run, world.base))
        ceilings[entry.name] = most if kind != "low" else max(most - 1, 0)
    made = Approval(
        path="",
        kind="baseline",
        subject="research" if kind == "other class" else "support",
        from_digest=world.anchor("base").digest,
        to_digest=None,
        evalset=sha("other") if kind == "other eval set" else EVALSET,
        ceilings=ceilings,
        changes=(Change("metric", "fanout.mean", "all", None, 0),),
        reason="The planner now verifies its citations.",
        requested_by="dana@example.com",
        requested_on="2026-09-28" if kind == "old" else "2026-11-28",
        nonce="5b1f0c9e7d3a2468",
    )
    if kind in ("waiver", "ended"):
        until = NOW + (3600 if kind == "waiver" else -3600)
        made = replace(
            made, kind="waiver", from_digest=None, evalset=None, ceilings={}, changes=(), expires_at=until,
            requested_on="2026-11-28",
        )  # fmt: skip
    if kind == "spent":
        world.spent = (made,)
    else:
        world.approvals = (made,)


def loosened(chance: random.Random, world: Made, about: list[str]) -> None:
    """HEAD's budget allows more, in one of the ways that there are."""
    first, *others = world.limits
    ways: list[tuple[str, NaiveLimit]] = []
    if first.increase is not None:
        ways.append(("evidence", replace(first, evidence=not first.evidence)))
        ways.append(("increase", replace(first, increase=first.increase + 40)))
        ways.append(("at_least", replace(first, at_least=first.at_least + 1)))
    if first.max is not None:
        ways.append(("max", replace(first, max=first.max + 1)))
    word, other = chance.choice(ways)
    world.head_limits, world.is_looser = (other, *others), True
    rule = chance.choice((None, ("alpha", "0.01"), ("trials", "2"), ("inconclusive", '"warn"')))
    if others and chance.random() < 0.3:
        word, world.head_limits = "dropped", tuple(others)
    elif rule is not None and rule != ("inconclusive", world.judge.get("inconclusive")):
        word, world.head_limits, world.head_judge = rule[0], world.limits, {**world.judge, rule[0]: rule[1]}
    about.append(f"looser {word}")


def world_of(seed: int) -> Made:
    """The world of a seed; ``about`` tells what was done to it."""
    chance = random.Random(seed)
    about: list[str] = []
    named = {entry.name: entry for entry in (limit(chance) for _ in range(chance.choice((1, 2, 3))))}
    trials = rows(chance, chance.choice((1, 2, 3, 5, 9, 10, 12, 20, 25)), chance.choice((1, 1, 2, 3, 5)))
    if chance.random() < 0.15:
        about.append("anchor with ends")
        trials = [ended(chance, t, ("capped", "failed", "timeout")) if chance.random() < 0.2 else t for t in trials]
    base = whole(trials)
    after = changed(chance, trials, about)
    draw = chance.choice(("same", "same", "new", "mixed"))
    about.append(draw)
    mixed = {t.task for t in after if chance.random() < 0.5}
    after = [anew(t) if draw == "new" or (draw == "mixed" and t.task in mixed) else t for t in after]
    if draw == "new" and chance.random() < 0.5:
        count = chance.randint(1, 5)
        about.append(f"{count} trials")
        after = [
            replace(made, trial=number, recording=sha(f"anew {made.task} {number}"))
            for task in dict.fromkeys(t.task for t in after)
            for number, made in enumerate(([t for t in after if t.task == task] * 5)[:count], 1)
        ]
    defined = {t.task: t.definition or "" for t in after}
    if chance.random() < 0.15:
        words = chance.choice((("capped",), ("timeout",), ("failed",), ("crashed", "invalid", "stale")))
        about.append(f"ends {words}")
        share = chance.choice((0.03, 0.1, 0.5))
        after = [ended(chance, t, words) if chance.random() < share else t for t in after]
    if chance.random() < 0.1:
        about.append("unknown usage")
        gone: dict[str, int | None] = {"input_tokens": None, "output_tokens": None}
        share = chance.choice((0.03, 0.3))
        after = [
            replace(t, samples={**t.samples, **gone}, unknown_usage=t.samples["fanout"] or 0)
            if chance.random() < share
            else t
            for t in after
        ]
    if draw == "new" and chance.random() < 0.25:
        about.append("uneven")
        after = [t for t in after if t.trial == 1 or t.task > "t05"]
    if chance.random() < 0.05:
        about.append("doubled")  # one recording stands for another one of its task as well, or one number for another
        first, second = (chance.choice(after) for _ in range(2))
        again = replace(first, trial=second.trial) if chance.random() < 0.5 else first
        after = [again if t is second and first.task == second.task else t for t in after]
    if chance.random() < 0.04:
        about.append("no calls")
        place = chance.randrange(len(after))
        after[place] = replace(after[place], samples={**after[place].samples, **samples_of(0)})
    if chance.random() < 0.2:
        count, level, number = chance.choice((1, 2, 5)), chance.choice((1, 5, 40)), chance.choice((1, 3))
        about.append(f"{count} new of {level}")
        for place in range(count):
            for which in range(1, number + 1):
                made = one(f"n{place}", which, level)
                after.append(anew(made) if draw == "new" else made)
        defined |= {f"n{place}": sha(f"definition of n{place}") for place in range(count)}
    if chance.random() < 0.05:
        about.append("redefined")
        task = chance.choice(sorted(defined))
        defined[task] = sha("other words")
        after = [replace(t, definition=defined[task]) if t.task == task else t for t in after]
    run = whole(after, definitions={"support": defined}, mode="replay" if draw == "same" else "record")
    if chance.random() < 0.06:
        about.append("lost")
        lost = chance.choice(after)
        alone = chance.random() < 0.5
        run = replace(run, tasks=tuple(t for t in after if t.task != lost.task or (alone and t is not lost)))
    if chance.random() < 0.05:
        about.append("let go")
        task = chance.choice(sorted(defined))
        run = replace(
            run,
            tasks=tuple(t for t in run.tasks if t.task != task),
            definitions={"support": {t: d for t, d in defined.items() if t != task}},
        )
    if chance.random() < 0.03:
        about.append("unattributed")
        run = replace(run, totals=Totals(unattributed=1))
    if chance.random() < 0.1:
        about.append("in part, in CI")
        run = replace(run, ci=True, session=replace(run.session, partial=True))
    world = Made(tuple(named.values()), base, base, run)
    heads = ("same",) * 9 + ("accepted", "raised", "lowered", "shrunk")
    match chance.choice(heads):
        case "accepted":
            about.append("accepted")
            replayed = tuple(replace(t, new_draw=False) for t in run.tasks)
            world.run = replace(run, tasks=replayed, mode="replay")
            world.head = replace(world.run, tasks=tuple(t for t in replayed if t.status in ("ok", "failed", "capped")))
        case "raised":
            about.append("raised")
            world.head = replace(base, tasks=tuple(times(t, 1.3, 1) for t in base.tasks))
        case "lowered":
            about.append("lowered")
            world.head = replace(
                base,
                tasks=tuple(
                    replace(t, samples={**t.samples, **samples_of(max(1, (t.samples["fanout"] or 0) // 2))})
                    for t in base.tasks
                ),
            )
        case "shrunk" if len({t.task for t in trials}) > 1:
            about.append("shrunk")
            world.head = replace(base, tasks=tuple(t for t in base.tasks if t.task != trials[-1].task))
    if not world.head.tasks:
        world.head = base
    if chance.random() < 0.45:
        approval(chance, world, about)
    world.head_limits = world.limits
    world.judge = {"inconclusive": '"warn"'} if chance.random() < 0.2 else {}
    if chance.random() < 0.2:
        world.judge = {**world.judge, "trials": "3"}
    world.head_judge = world.judge
    if chance.random() < 0.12:
        loosened(chance, world, about)
    elif chance.random() < 0.1:
        about.append("tighter budget")
        world.head_limits = tuple(replace(e, increase=0, at_least=0) for e in world.limits)
    world.about = about
    return world

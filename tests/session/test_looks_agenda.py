"""Which trials of a new draw run, in which order, and which are withheld: decided without pytest, files or a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from pytest_fanout.records import Needs, Problem, TaskRun
from pytest_fanout.session.flow.forecast import Trial
from pytest_fanout.session.looks.agenda import Agenda
from pytest_fanout.session.looks.told import withheld_problems
from pytest_fanout.store.recordings import Drawn

THREE = ("a", "b", "c")
NEEDED = Needs(THREE, 1, "look")


@dataclass
class World:
    """Three tasks of five trials in a class with an anchor; ``stale`` tasks run live, the others are replayed.

    ``needs``: what the judge answers, one after the other, and then nothing.
    """

    recorded: Mapping[str, Sequence[int]] = field(default_factory=lambda: dict.fromkeys(THREE, range(1, 6)))
    stale: frozenset[str] = frozenset(THREE)
    unguided: frozenset[str] = frozenset()
    needs: list[Needs] = field(default_factory=list)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of recordings, by the anchor
    draws: Mapping[Trial, int] = field(default_factory=dict)
    begun: Mapping[Trial, int] = field(default_factory=dict)  # unix seconds
    odd: Mapping[Trial, TaskRun | None] = field(default_factory=dict)  # how these end; None: without a number
    runs: list[TaskRun] = field(default_factory=list)
    rounds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        trials = [trial_of(f"{task}{number}") for task in THREE for number in range(1, 6)]
        self.agenda = Agenda(trials, self, self.ask)

    def is_guided(self, agent: str, task: str) -> bool:
        return task not in self.unguided

    def drawn(self, trial: Trial) -> Drawn | None:
        recorded = trial.trial in self.recorded.get(trial.task, ())
        return Drawn(self.draws.get(trial, 1), self.begun.get(trial, 0)) if recorded else None

    def named(self, agent: str, task: str) -> Sequence[str | None]:
        return list(self.names.get(task, ()))

    def ask(self, runs: Sequence[TaskRun]) -> Mapping[str, Needs]:
        return {"support": self.needs.pop(0) if self.needs else Needs()}

    def run_all(self) -> list[str]:
        """Run round after round; each as a text such as ``a1 b1 c1``."""
        while trials := self.agenda.next_round(self.runs):
            self.rounds.append(" ".join(f"{trial.task}{trial.trial}" for trial in trials))
            for trial in trials:
                run = self.odd.get(trial, self.ended(trial))
                self.runs += [run] if run is not None else []
        return self.rounds

    def ended(self, trial: Trial) -> TaskRun:
        live = trial.task in self.stale or self.drawn(trial) is None
        return replace(
            ended(trial), new_draw=live, recording=f"{trial.task}{trial.trial}", spent_calls=4 if live else 0,
            draw=self.draws.get(trial, 1), begun_at=self.begun.get(trial, 0),
        )  # fmt: skip


def trial_of(name: str) -> Trial:
    return Trial("support", name[0], int(name[1:]))


def ended(trial: Trial, **more: object) -> TaskRun:
    return TaskRun("support", trial.task, trial.trial, "ok", True, {"fanout": 4}, new_draw=True, **more)  # type: ignore[arg-type]


def test_a_draw_ends_as_soon_as_nothing_is_needed() -> None:
    """One trial of each task, and the judge asks for no more: the other twelve are withheld."""
    world = World()

    assert world.run_all() == ["a1 b1 c1"]
    assert sorted(f"{task}{number}" for _, task, number in world.agenda.withheld) == [
        f"{task}{number}" for task in THREE for number in (2, 3, 4, 5)
    ]
    assert world.agenda.looks("support") == (1, 1, 5)


def test_what_the_judge_asks_for_runs_trial_by_trial() -> None:
    """A look of all tasks, then two trials of one task: the second after the first; then all the rest is withheld."""
    world = World(needs=[NEEDED, Needs(("b",), 2, "backstop")])

    assert world.run_all() == ["a1 b1 c1", "a2 b2 c2", "b3 b4"]
    assert world.agenda.looks("support") == (2, 4, 5)
    assert len(world.agenda.withheld) == 15 - 8


def test_a_judge_who_is_never_content_gets_every_trial_and_no_more() -> None:
    """Five trials were selected: a sixth is not to be had."""
    world = World(needs=[NEEDED] * 9)

    assert world.run_all() == [f"a{n} b{n} c{n}" for n in range(1, 6)]
    assert world.agenda.withheld == ()
    assert world.agenda.is_spent


def test_valid_recordings_are_replayed_without_being_asked_for() -> None:
    """They cost nothing. Only of the stale task, which ran live, is nothing run that the judge does not ask for."""
    world = World(stale=frozenset("b"), needs=[Needs(("b",), 1, "look")])

    assert world.run_all() == ["a1 b1 c1", "a2 c2", "a3 c3", "a4 c4", "a5 c5", "b2"]
    assert [trial.trial for trial in world.agenda.withheld] == [3, 4, 5]
    assert world.agenda.looks("support") == (2, 2, 5)  # of b: the others have nothing left


def test_a_trial_that_is_missing_of_the_anchors_draw_is_run() -> None:
    """The anchor names five recordings, two of which are gone: without them its own draw would be incomplete."""
    names = {"a": ["a1", "a2", "a3", "a4", "a5"], "b": ["b1", "b2"], "c": ["x1", "x2", "x3", "x4", "x5"]}
    recorded = {"a": (1, 2, 3), "b": (1, 2), "c": (1, 2)}  # b: the anchor has no more; c: of another draw
    world = World(stale=frozenset(), recorded=recorded, names=names)

    assert world.run_all() == ["a1 b1 c1", "a2 b2 c2", "a3", "a4"]


def test_trials_of_an_anchor_that_were_recorded_anew_one_by_one_all_run() -> None:
    """Its first trial is of draw 2 and the others are of draw 1: withheld, they would make its own draw incomplete."""
    names = {task: [f"{task}{number}" for number in range(1, 6)] for task in THREE}
    world = World(stale=frozenset(), names=names, draws={trial_of(f"{task}1"): 2 for task in THREE})

    assert world.run_all() == [f"a{n} b{n} c{n}" for n in range(1, 6)]


def test_a_draw_that_has_left_the_anchors_is_not_filled_up() -> None:
    """One trial is the anchor's and the next one ran live: the rest of the anchor's draw is of no use any more."""
    live = replace(ended(trial_of("a2")), recording="new")
    names = {"a": ["a1", "a2", "a3", "a4", "a5"]}
    world = World(stale=frozenset("bc"), recorded={"a": (1,)}, names=names, odd={trial_of("a2"): live})

    assert world.run_all() == ["a1 b1 c1", "a2"]


def test_an_older_draw_that_was_left_behind_is_not_taken_for_free() -> None:
    """After an interrupted run the first trial is of draw 2 and the others still of draw 1: they would run live."""
    world = World(stale=frozenset(), draws={trial_of(f"{task}1"): 2 for task in THREE})

    assert world.run_all() == ["a1 b1 c1"]


def test_trials_that_were_added_to_a_draw_later_belong_to_it() -> None:
    """Its first two trials are the fourth draw of theirs, and the others the first: the older ones had been removed."""
    firsts = {trial_of(f"{task}{number}"): 4 for task in THREE for number in (1, 2)}
    later = {trial_of(f"{task}{number}"): 3600 for task in THREE for number in (3, 4, 5)}
    world = World(stale=frozenset(), draws=firsts, begun=later)

    assert world.run_all() == [f"a{n} b{n} c{n}" for n in range(1, 6)]


def test_tasks_that_evidence_cannot_spare_run_at_once_and_whole() -> None:
    """A task that the anchor does not hold is recorded with all its trials, in pytest's own order."""
    world = World(unguided=frozenset("b"))

    assert world.run_all() == ["a1 b1 b2 b3 b4 b5 c1"]
    assert {trial.task for trial in world.agenda.withheld} == {"a", "c"}


@pytest.mark.parametrize(
    "run",
    [
        None,
        ended(trial_of("b1"), problems=(Problem("unproved-recording", "…", "invalid"),)),
        replace(ended(trial_of("b1")), status="invalid"),
        replace(ended(trial_of("b1")), samples={"fanout": 0}),
    ],
    ids=["lost", "problem", "invalid", "no call"],
)
def test_a_class_that_cannot_be_judged_costs_no_more_calls(run: TaskRun | None) -> None:
    """A look is whole or it is none: where a trial has no number to trust, no other is asked for."""
    world = World(needs=[NEEDED], odd={trial_of("b1"): run})

    assert world.run_all() == ["a1 b1 c1"]
    assert world.agenda.broken == {"support"}


def test_a_notice_stops_nothing() -> None:
    """What only informs does not keep a class from being judged; nor does a task that makes no calls by right."""
    noted = ended(trial_of("b1"), problems=(Problem("imported-recording", "…", "notice"),))
    silent = replace(ended(trial_of("c1")), samples={"fanout": 0}, no_calls=True)
    world = World(needs=[NEEDED], odd={trial_of("b1"): noted, trial_of("c1"): silent})

    assert world.run_all() == ["a1 b1 c1", "a2 b2 c2"]


def test_nothing_is_withheld_by_a_run_that_did_not_end() -> None:
    """What an interrupted run left undone is lost, not spared."""
    world = World()
    world.agenda.next_round([])

    assert not world.agenda.is_finished
    assert world.agenda.withheld == ()


# --- what is told ------------------------------------------------------------------------------------------------


def told(world: World, standing: Mapping[str, bool], **more: bool) -> list[str]:
    world.run_all()
    return [problem.text for problem in withheld_problems(world.agenda, world.runs, standing, **more)]


def test_trials_withheld() -> None:
    """Two looks of three tasks at four calls each are 24; the nine trials that were left would have cost 36."""
    world = World(needs=[NEEDED])

    assert told(world, {"support": True}) == [
        "support: 9 trials withheld: evidence stood after 2 of 5 trials a task; 24 live calls made, about 36 saved"
    ]
    assert withheld_problems(world.agenda, world.runs, {"support": True})[0].slug == "trials-withheld"


def test_tasks_that_ran_unlike_numbers_of_trials_are_told_apart() -> None:
    """Only one task had its second trial: nobody reads that all had two."""
    world = World(needs=[Needs(("b",), 1, "backstop")])

    assert told(world, {"support": True}) == [
        "support: 11 trials withheld: evidence stood after 1 to 2 of 5 trials a task; 16 live calls made, "
        "about 44 saved"
    ]


def test_why_trials_were_withheld_is_never_guessed() -> None:
    """Evidence is only said to stand where the judge was content."""
    made = "12 live calls made, about 48 saved"

    assert told(World(), {"support": False}) == [
        f"support: 12 trials withheld: nothing asks for them, though the evidence is short; {made}"
    ]
    assert told(World(), {}, is_stopped=True) == [
        f"support: 12 trials withheld: the run came to its spend limit before the evidence stood; {made}"
    ]
    assert told(World(), {"support": True}, is_stopped=True) == [  # another class came to it
        f"support: 12 trials withheld: evidence stood after 1 of 5 trials a task; {made}"
    ]
    assert told(World(odd={trial_of("a1"): replace(ended(trial_of("a1")), status="invalid")}), {"support": True}) == [
        "support: 12 trials withheld: a trial gave no number that can be trusted, so that no more were asked for; "
        "8 live calls made, about 32 saved"
    ]


def test_replayed_trials_that_were_not_needed_are_not_worth_a_word() -> None:
    """On the anchor's own draw nothing would have been spent."""
    world = World(stale=frozenset(), recorded=dict.fromkeys(THREE, (1, 2)))

    assert told(world, {}) == []
    assert len(world.agenda.withheld) == 9

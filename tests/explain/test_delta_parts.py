"""The rule of the decomposition, worked by hand, and that parts always add up."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from made_agents import Made, side, tool

from pytest_fanout.explain.explain import Side, explain
from pytest_fanout.explain.parts import shared_out
from pytest_fanout.records import Explanation


def told(base: Side, run: Side) -> Explanation:
    matched = explain("a", base, run)
    assert matched is not None
    return matched.explanation


def parts(explanation: Explanation, metric: str, scope: str = "mean") -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for part in explanation.parts:
        if (part.metric, part.scope) == (metric, scope):
            found[part.kind] = found.get(part.kind, Fraction(0)) + part.value
    return found


def worker(calls: int, answer: int, *, together: bool = False, asked: int = 4) -> Callable[[Made], None]:
    """So many calls with answers of so many tokens; the prompt has 10, the question 4 (its number in the last)."""

    def agent(made: Made) -> None:
        for number in range(calls):
            question = f"{number:0{asked}d}"
            made.call("0123456789", [question], "x" * answer, at=10 * number if together else None)

    return agent


def test_the_rule_of_two_factors() -> None:
    """2 calls of 14 + 10 tokens become 4 of 14 + 20: the calls are 2 x (24 + 34) / 2 = 58, the answers 3 x 10 = 30."""
    explanation = told(side(worker(2, 10)), side(worker(4, 20)))

    assert parts(explanation, "fanout") == {"begun": 2}
    assert parts(explanation, "tokens") == {"begun": 58, "output": 30}


def test_calls_that_are_under_way_together_are_width() -> None:
    """Four calls that begin 10 ms apart and last 100: three of them begin beside another one."""
    explanation = told(side(worker(1, 10)), side(worker(4, 10, together=True)))

    assert parts(explanation, "fanout") == {"wider": 3}


def test_longer_conversations_are_depth() -> None:
    """Each turn goes on with the one before: two more turns a task."""

    def chat(turns: int) -> Callable[[Made], None]:
        def agent(made: Made) -> None:
            said: list[object] = ["tell me of it"]
            for number in range(turns):
                answer = made.call("You talk.", said, f"so much on point {number}")  # type: ignore[arg-type]
                said = [*said, answer, "and of the next one"]

        return agent

    explanation = told(side(chat(2)), side(chat(4)))

    assert parts(explanation, "fanout") == {"turn": 2}
    assert parts(explanation, "tokens")["resent"] > 0


def test_retries_are_a_part_of_attempts_alone() -> None:
    """Each call is answered 503 once before: one attempt more a task, and no call."""

    def retrying(times: int) -> Callable[[Made], None]:
        def agent(made: Made) -> None:
            for _ in range(times):
                made.call("You talk.", ["q"], status=503)
            made.call("You talk.", ["q"])

        return agent

    explanation = told(side(retrying(0)), side(retrying(1)))

    assert parts(explanation, "attempts") == {"retries": 1}
    assert parts(explanation, "fanout") == {}


def test_tasks_that_came_are_a_part_of_their_own() -> None:
    """Tasks a and b make 1 call, the new task c makes 7: the mean grows by 2, all of it by the eval set."""
    base, run = side(worker(1, 5), ("a", "b")), side(worker(1, 5), ("a", "b"))
    new = side(worker(7, 5), ("c",))
    grown = Side({**run.samples, **new.samples}, [*run.trials, *new.trials], {})

    assert parts(told(base, grown), "fanout") == {"evalset": 2}


def test_a_task_that_was_redefined_is_compared_with_nothing() -> None:
    """Its growth belongs to the eval set, and not to the agent."""
    base, run = side(worker(1, 5), ("a", "b")), side(worker(1, 5), ("a",))
    other = side(worker(3, 5), ("b",))
    grown = Side({**run.samples, **other.samples}, [*run.trials, *other.trials], {"a": "1", "b": "2"})

    assert parts(told(Side(base.samples, base.trials, {"a": "1", "b": "1"}), grown), "fanout") == {"evalset": 1}


def test_the_tail_is_that_of_the_run_on_both_sides() -> None:
    """Of 20 tasks the two dearest of the run grew from 1 and 1 to 9 and 5: 1 -> 7 in the tail, 0.6 in the mean."""
    tasks = tuple(f"t{number:02d}" for number in range(20))

    def uneven(made: Made) -> None:
        worker({"t03": 9, "t07": 5}.get(made.task, 1), 5)(made)

    explanation = told(side(worker(1, 5), tasks), side(uneven, tasks))
    totals = {total.scope: total for total in explanation.totals if total.metric == "fanout"}

    assert totals["p95"].tasks == ("t03", "t07")
    assert (totals["p95"].delta, totals["mean"].delta) == (6, Fraction(3, 5))
    assert parts(explanation, "fanout", "p95") == {"begun": 6}


def test_tokens_that_are_not_known_are_not_explained() -> None:
    """A class whose tokens nobody counted has totals of calls and attempts alone."""
    base, run = side(worker(1, 5)), side(worker(2, 5))
    unknown = {task: [{**trial, "input_tokens": None} for trial in trials] for task, trials in run.samples.items()}

    explanation = told(base, Side(unknown, run.trials, {}))

    assert {total.metric for total in explanation.totals} == {"fanout", "attempts"}


def test_shares_of_a_count_add_up_to_it() -> None:
    """10 tokens over 1, 1 and 1 characters are 4, 3 and 3: the largest rest first, then by name."""
    assert shared_out(10, {"a": 1, "b": 1, "c": 1}) == {"a": 4, "b": 3, "c": 3}


def test_what_did_not_change_takes_no_more_tokens() -> None:
    """A longer question of 150 tokens more: by characters the tools and the prompt would have most of them."""

    def asking(question: str, spent: int, **changed: str) -> Callable[[Made], None]:
        def agent(made: Made) -> None:
            definition = tool("search", changed.get("tool", "Finds pages."))
            made.call("You search.", [question], tools=[definition], model=changed.get("model", "m-1"), spent=spent)

        return agent

    base = side(asking("why?", 100))

    assert parts(told(base, side(asking("why is that so?", 250))), "tokens") == {"asked": 150}
    # all input is alike: it is told as more input, of nothing in particular
    assert parts(told(base, side(asking("why?", 250))), "tokens") == {"asked": 150}
    # the definition changed: it is what moved, and the prompt still did not
    other = parts(told(base, side(asking("why?", 250, tool="Finds pages, and all that is on them."))), "tokens")
    assert (other["tools"] > 100, "prompt" in other, sum(other.values())) == (True, False, 150)
    # another model may make other tokens of the same text
    assert set(parts(told(base, side(asking("why?", 250, model="m-2"))), "tokens")) == {"asked", "prompt", "tools"}


CALLS = st.lists(st.tuples(st.sampled_from("pqr"), st.integers(1, 30), st.booleans()), max_size=5)
TASKS = st.lists(CALLS, min_size=3, max_size=3)


@settings(max_examples=40, deadline=None)
@given(TASKS, TASKS, st.integers(1, 2))
def test_parts_add_up_to_every_delta(before: object, after: object, trials: int) -> None:
    """Whatever was called where, with which answer and repeated or not: parts are the delta, to the last fraction."""

    def made_of(plan: object) -> Side:
        def agent(made: Made) -> None:
            for number, (site, answer, is_same) in enumerate(plan["abc".index(made.task)]):  # type: ignore[index]
                made.call(f"You are the site {site} of it.", ["same" if is_same else str(number)], "x" * answer)

        return side(agent, ("a", "b", "c"), trials)

    matched = explain("a", made_of(before), made_of(after))
    assert matched is not None
    explanation = matched.explanation

    for total in explanation.totals:
        assert sum(parts(explanation, total.metric, total.scope).values()) == total.delta
    assert "untold" not in parts(explanation, "tokens")

"""Calls by call site, base beside run. Expected values are worked by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.explain.sites import NO_SITE, compare_sites, decompose, site_stats
from pytest_fanout.records import CallSite, SiteDelta, SiteStats, TaskRun


def site(number, label):
    return CallSite(f"{number:016x}", "openai.chat", "m-1", ("search",), label)


PLAN, SEARCH, VERIFY = site(1, "plan"), site(2, "search"), site(3, "verify")
BY_LABEL = {s.label: s for s in (PLAN, SEARCH, VERIFY)}


def run_of(task, trial=1, agent="support", status="ok", fanout=None, tokens=None, **calls):
    """One trial with so many calls at each named site, and 100 tokens a call unless given."""
    by_site = {BY_LABEL[label].fingerprint: count for label, count in calls.items()}
    known = by_site if tokens is None else {BY_LABEL[label].fingerprint: n for label, n in tokens.items()}
    return TaskRun(
        agent=agent,
        task=task,
        trial=trial,
        status=status,
        passed=True,
        samples={"fanout": sum(calls.values()) if fanout is None else fanout},
        sites=by_site,
        site_tokens={f: n * 100 for f, n in known.items()} if tokens is None else known,
        call_sites=tuple(BY_LABEL[label] for label in calls),
    )


BASE = [run_of("a", plan=1, search=3, verify=1), run_of("b", plan=1, search=4)]


def test_stats_are_sums_over_trials():
    """Two tasks of one trial: 2 plan, 7 search and 1 verify call over 2 trials, each with its tokens."""
    assert site_stats(BASE, "support") == SiteStats(
        agent="support",
        weight=2,
        sites=(PLAN, SEARCH, VERIFY),
        calls={PLAN.fingerprint: 2, SEARCH.fingerprint: 7, VERIFY.fingerprint: 1},
        tokens={PLAN.fingerprint: 200, SEARCH.fingerprint: 700, VERIFY.fingerprint: 100},
    )


def test_stats_are_of_one_class():
    """Trials of another class are not counted."""
    assert site_stats([*BASE, run_of("c", agent="research", plan=50)], "support") == site_stats(BASE, "support")


def test_stats_of_no_trial():
    """A class that did not run has no sites and no weight."""
    assert site_stats(BASE, "research") == SiteStats("research", 0, (), {}, {})


def test_stats_with_equal_trials_are_plain_sums():
    """Two trials of each task are four trials."""
    tasks = [run_of("a", 1, plan=1), run_of("a", 2, plan=3), run_of("b", 1, plan=5), run_of("b", 2, plan=7)]

    stats = site_stats(tasks, "support")

    assert (stats.weight, stats.calls) == (4, {PLAN.fingerprint: 16})


def test_each_task_counts_once():
    """Three trials of 2 calls and one of 8 are 5 calls a task, not 3.5: sums are scaled to 3 trials each."""
    tasks = [run_of("a", n, plan=2) for n in (1, 2, 3)] + [run_of("b", plan=8)]

    stats = site_stats(tasks, "support")

    assert (stats.weight, stats.calls) == (6, {PLAN.fingerprint: 30})


@pytest.mark.parametrize("status", ["stale", "invalid", "crashed"])
def test_trials_that_are_no_measurement_are_left_out(status):
    """A trial that was cut short by no fault of the agent would look like calls saved."""
    cut = run_of("a", 2, status=status, plan=1)

    assert site_stats([*BASE, cut], "support") == site_stats(BASE, "support")


@pytest.mark.parametrize("status", ["failed", "capped", "timeout"])
def test_expensive_ends_stay_in(status):
    """Failed, capped and timed-out trials are the expensive ones: their calls count."""
    stats = site_stats([run_of("a", status=status, search=200)], "support")

    assert stats.calls == {SEARCH.fingerprint: 200}


def test_calls_without_a_site_are_kept():
    """A fanout of 6 with 4 calls at known sites has 2 at the site that stands for the rest."""
    stats = site_stats([run_of("a", fanout=6, plan=4)], "support")

    assert stats.calls == {PLAN.fingerprint: 4, NO_SITE.fingerprint: 2}
    assert stats.sites == (NO_SITE, PLAN)


def test_every_kind_of_change_largest_first():
    """search 3.5 -> 9.5, verify gone (0.5), plan unchanged: ordered by the change of calls, with tokens per trial."""
    run = [run_of("a", plan=1, search=9), run_of("b", plan=1, search=10)]

    assert compare_sites("support", site_stats(BASE, "support"), run) == (
        SiteDelta("support", SEARCH, 350, 950, 350, 950, "more"),
        SiteDelta("support", VERIFY, 50, 0, 50, 0, "gone"),
        SiteDelta("support", PLAN, 100, 100, 100, 100, "same"),
    )


def test_new_and_fewer():
    """A site that the base does not have is new; one that is called less often is fewer."""
    run = [run_of("a", search=3, verify=5, plan=2)]

    deltas = compare_sites("support", site_stats([run_of("a", search=4, plan=2)], "support"), run)

    assert [(d.site.label, d.calls_base, d.calls_run, d.change) for d in deltas] == [
        ("verify", 0, 500, "new"),
        ("search", 400, 300, "fewer"),
        ("plan", 200, 200, "same"),
    ]


def stats_of(calls, *sites):
    return SiteStats("support", 1, sites, {one.fingerprint: calls for one in sites}, {})


def run_at(*told):
    """One trial with so many calls at each site."""
    by_site = {one.fingerprint: count for one, count in told}
    samples = {"fanout": sum(by_site.values())}
    described = tuple(one for one, _ in told)
    return [TaskRun("support", "a", 1, "ok", True, samples, sites=by_site, call_sites=described)]


def test_reworded_prompt_is_the_same_site():
    """The only prompt of each side, with the tools and API that it had: one site that changed, as it is now."""
    old, new = site(4, "You are a shop's agent."), site(5, "Help the customers.")

    assert [
        (d.site, d.calls_base, d.calls_run, d.change)
        for d in compare_sites("support", stats_of(2, old), run_at((new, 3)))
    ] == [(new, 200, 300, "changed")]


def test_of_several_prompts_those_that_begin_alike_are_one():
    """A blank more behind the first words, or another model: changed. What has nothing in common is gone and new."""
    old, plan = site(4, "You are a shop's support agent."), site(5, "You plan what to look up.")
    new, other = site(6, old.label), CallSite("7" * 16, plan.api, "m-2", plan.tools, plan.label)

    deltas = compare_sites("support", stats_of(1, old, plan, VERIFY), run_at((new, 1), (other, 1), (SEARCH, 1)))

    assert {(d.site.fingerprint, d.change) for d in deltas} == {
        (new.fingerprint, "changed"),
        (other.fingerprint, "changed"),
        (VERIFY.fingerprint, "gone"),
        (SEARCH.fingerprint, "new"),
    }


def test_one_more_prompt_that_begins_so_is_new():
    """Of two that begin as the one that is gone does, the one that is called as often is the one that changed."""
    old = site(4, "You are a shop's support agent.")
    more, same = site(5, old.label), site(6, old.label)

    deltas = compare_sites("support", stats_of(2, old), run_at((more, 7), (same, 2)))

    assert {(d.site.fingerprint, d.change) for d in deltas} == {
        (same.fingerprint, "changed"),
        (more.fingerprint, "new"),
    }


def test_calls_without_a_site_are_never_a_site_that_changed():
    """Nothing is known of them."""
    deltas = compare_sites("support", stats_of(2, NO_SITE), run_at((PLAN, 2)))

    assert {d.change for d in deltas} == {"gone", "new"}


def test_hundredths_are_rounded_half_up():
    """1 call in 3 trials is 0.33, 2 in 3 are 0.67, 1 in 200 is 0.01 (0.005 rounds up)."""
    base = SiteStats("support", 3, (PLAN, SEARCH), {PLAN.fingerprint: 1, SEARCH.fingerprint: 2}, {})
    few = SiteStats("support", 200, (VERIFY,), {VERIFY.fingerprint: 1}, {})
    run = [run_of("a", verify=1)]

    by_label = {d.site.label: d for d in compare_sites("support", base, run)}

    assert (by_label["plan"].calls_base, by_label["search"].calls_base) == (33, 67)
    assert compare_sites("support", few, run)[0].calls_base == 1


def test_change_follows_the_figures_that_are_shown():
    """2,000 against 2,001 calls in 1,000 trials both read 2.00, so the change is "same"."""
    base = SiteStats("support", 1_000, (PLAN,), {PLAN.fingerprint: 2_001}, {PLAN.fingerprint: 1})

    (delta,) = compare_sites("support", base, [run_of("a", plan=2)])

    assert (delta.calls_base, delta.calls_run, delta.change) == (200, 200, "same")


def test_unknown_tokens_stay_unknown():
    """A site with calls but without known tokens has None, not 0."""
    run = [run_of("a", tokens={}, plan=2)]

    (delta,) = compare_sites("support", site_stats([run_of("a", plan=2)], "support"), run)

    assert (delta.tokens_base, delta.tokens_run) == (200, None)


def test_tokens_of_nothing_are_unknown():
    """An anchor that says 0 tokens for a site with calls did not know them."""
    base = SiteStats("support", 1, (PLAN,), {PLAN.fingerprint: 2}, {PLAN.fingerprint: 0})

    (delta,) = compare_sites("support", base, [run_of("a", plan=2)])

    assert (delta.tokens_base, delta.tokens_run) == (None, 200)


@pytest.mark.parametrize("base", [None, SiteStats("support", 0, (), {}, {})])
def test_nothing_to_compare_with(base):
    """Without a base no site is called new."""
    assert compare_sites("support", base, BASE) == ()


def test_nothing_ran():
    """Without a trial no site is called gone."""
    assert compare_sites("support", site_stats(BASE, "support"), []) == ()


def test_same_run_in_another_order_is_the_same():
    """Stats and comparison do not depend on the order of trials."""
    base = site_stats(BASE, "support")

    assert site_stats(BASE[::-1], "support") == base
    assert {d.change for d in compare_sites("support", base, BASE[::-1])} == {"same"}


def test_parts_of_the_delta():
    """8 -> 22 calls: 16 more at search, 1 new at verify, 3 fewer at plan are 14."""
    base = site_stats([run_of("a", plan=4, search=4)], "support")
    run = site_stats([run_of("a", plan=1, search=20, verify=1)], "support")

    parts = decompose(base, run)

    assert (parts.delta, parts.new, parts.gone, parts.more, parts.fewer) == (14, 1, 0, 16, -3)


def test_parts_are_exact_where_means_are_thirds():
    """1/3 of a call more and 1/7 fewer are 4/21, without rounding."""
    base = SiteStats("s", 21, (PLAN, SEARCH), {PLAN.fingerprint: 21, SEARCH.fingerprint: 21}, {})
    run = SiteStats("s", 21, (PLAN, SEARCH), {PLAN.fingerprint: 28, SEARCH.fingerprint: 18}, {})

    parts = decompose(base, run)

    assert (parts.more, parts.fewer, parts.delta) == (Fraction(1, 3), Fraction(-1, 7), Fraction(4, 21))


COUNTS = st.dictionaries(st.sampled_from(["plan", "search", "verify"]), st.integers(0, 50))
TRIALS = st.lists(st.tuples(st.sampled_from("abc"), COUNTS, st.integers(0, 9)), min_size=1, max_size=12)


@given(TRIALS, TRIALS)
def test_parts_sum_to_the_delta_of_mean_fanout(before, after):
    """Whatever ran where, the parts sum exactly to the change of mean calls per task, sites known or not."""

    def trials(rows):
        return [
            run_of(task, n, fanout=sum(calls.values()) + rest, **calls) for n, (task, calls, rest) in enumerate(rows, 1)
        ]

    def mean(runs):
        tasks = {r.task for r in runs}
        of_task = [[r.samples["fanout"] for r in runs if r.task == task] for task in tasks]
        return sum(Fraction(sum(values), len(values)) for values in of_task) / len(tasks)

    base, run = trials(before), trials(after)

    parts = decompose(site_stats(base, "support"), site_stats(run, "support"))

    assert parts.new + parts.gone + parts.more + parts.fewer == parts.delta == mean(run) - mean(base)


def test_no_parts_of_nothing():
    """A side without trials has no mean to explain."""
    with pytest.raises(ValueError, match="one side has no trials"):
        decompose(SiteStats("s", 0, (), {}, {}), site_stats(BASE, "support"))

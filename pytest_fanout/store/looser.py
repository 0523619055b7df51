"""Which of two budgets is looser, entry by entry, and the stricter of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction

from pytest_fanout.records import Budget, Caps, Change, JudgeRules, Limit, MeasureRules
from pytest_fanout.store.budget import names_of

_ADMITS = ("volatile", "passthrough", "live_inputs", "ignore")  # each entry lets something through
_WATCHES = ("model_hosts", "stateful_tools")  # each entry keeps something from being passed over
_CAPS = tuple(field.name for field in fields(Caps))


def looser(base: Budget, head: Budget) -> tuple[Change, ...]:
    """Every way in which ``head`` allows more than ``base``, in the words of the file. Empty: equal or stricter."""
    changes: list[Change] = []
    for name in names_of(base, head):
        key = "default" if name == "default" else f"agents.{name}"
        changes += _looser_limits(key, base.limits_for(name), head.limits_for(name))
        changes += _looser_limits(key, base.capacity_for(name), head.capacity_for(name))
        for cap in _CAPS:
            old, new = getattr(base.caps_for(name), cap), getattr(head.caps_for(name), cap)
            if old is not None and (new is None or new > old):
                changes.append(_change(f"{key}.caps.{cap}", old, "none" if new is None else new))
        changes += _looser_judge(key, base.judge_for(name), head.judge_for(name))
    changes += _looser_measure(base.measure, head.measure)
    return tuple(changes)


def _change(name: str, old: object, new: object) -> Change:
    def plain(value: object) -> int | str | None:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None or isinstance(value, int | str):
            return value
        return f"{float(value):g}" if isinstance(value, Fraction) else str(value)

    return Change("budget", name, None, plain(old), plain(new))


def _looser_limits(key: str, base: tuple[Limit, ...], head: tuple[Limit, ...]) -> Iterator[Change]:
    now = {limit.name: limit for limit in head}
    for old in base:
        new, name = now.get(old.name), f"{key}.limits.{old.name}"
        if new is None:
            yield _change(name, "limited", "none")
            continue
        if old.increase is not None and (new.increase is None or new.increase > old.increase):
            yield _change(f"{name}.increase", _words(old.increase), _words(new.increase))
        if old.increase is not None and new.at_least > old.at_least:
            yield _change(f"{name}.at_least", old.at_least, new.at_least)
        if old.max is not None and (new.max is None or new.max > old.max):
            yield _change(f"{name}.max", old.max, "none" if new.max is None else new.max)
        if old.min is not None and (new.min is None or new.min < old.min):
            yield _change(f"{name}.min", old.min, "none" if new.min is None else new.min)
        # raw numbers pass growth that evidence finds, and the other way round: neither is the stricter
        if old.evidence != new.evidence and (old.increase is not None or not old.evidence):
            yield _change(f"{name}.evidence", *("on" if limit.evidence else "off" for limit in (old, new)))


def _words(share: Fraction | None) -> str:
    return "none" if share is None else f"{float(share * 100):g}%"


def _looser_judge(key: str, base: JudgeRules, head: JudgeRules) -> Iterator[Change]:
    key = f"{key}.judge"
    for name in ("trials", "alpha", "sessions", "drift_days"):
        old, new = getattr(base, name), getattr(head, name)
        if new < old:
            yield _change(f"{key}.{name}", old, new)
    if head.drift > base.drift:
        yield _change(f"{key}.drift", _words(base.drift), _words(head.drift))
    if base.inconclusive == "fail" and head.inconclusive == "warn":
        yield _change(f"{key}.inconclusive", "fail", "warn")
    if base.max_age_days is not None and (head.max_age_days is None or head.max_age_days > base.max_age_days):
        yield _change(f"{key}.max_age_days", base.max_age_days, head.max_age_days)


def _looser_measure(base: MeasureRules, head: MeasureRules) -> Iterator[Change]:
    for name in _ADMITS:
        for entry in getattr(head, name):
            if entry not in getattr(base, name):
                yield _change(f"measure.{name}", None, entry)
    for name in _WATCHES:
        for entry in getattr(base, name):
            if entry not in getattr(head, name):
                yield _change(f"measure.{name}", entry, None)
    for flag in ("seal_keys", "strict_egress"):
        if getattr(base, flag) and not getattr(head, flag):
            yield _change(f"measure.{flag}", True, False)


def stricter(base: Budget, head: Budget) -> Budget:
    """The stricter of both, entry by entry; its digest is that of ``head``."""
    names = tuple(names_of(base, head))
    return Budget(
        digest=head.digest,
        limits={name: _stricter_limits(base.limits_for(name), head.limits_for(name)) for name in names},
        capacity={name: _stricter_limits(base.capacity_for(name), head.capacity_for(name)) for name in names},
        caps={name: _stricter_caps(base.caps_for(name), head.caps_for(name)) for name in names},
        judge={name: _stricter_judge(base.judge_for(name), head.judge_for(name)) for name in names},
        measure=_stricter_measure(base.measure, head.measure),
        is_default=base.is_default and head.is_default,
    )


def _least(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _stricter_limits(base: tuple[Limit, ...], head: tuple[Limit, ...]) -> tuple[Limit, ...]:
    merged = {limit.name: limit for limit in head}
    for old in base:
        new = merged.get(old.name)
        if new is None:
            merged[old.name] = old
            continue
        increases = [limit.increase for limit in (old, new) if limit.increase is not None]
        # at_least says something only beside an increase
        floors = [limit.at_least for limit in (old, new) if limit.increase is not None]
        merged[old.name] = replace(
            new,
            increase=min(increases) if increases else None,
            at_least=min(floors) if floors else 0,
            max=_least(old.max, new.max),
            min=max((each for each in (old.min, new.min) if each is not None), default=None),
            evidence=new.evidence if old.increase is None and old.evidence else old.evidence,
        )
    return tuple(merged.values())


def _stricter_caps(base: Caps, head: Caps) -> Caps:
    return Caps(**{name: _least(getattr(base, name), getattr(head, name)) for name in _CAPS})


def _stricter_judge(base: JudgeRules, head: JudgeRules) -> JudgeRules:
    return JudgeRules(
        trials=max(base.trials, head.trials),
        alpha=max(base.alpha, head.alpha),
        sessions=max(base.sessions, head.sessions),
        inconclusive="warn" if base.inconclusive == head.inconclusive == "warn" else "fail",
        drift=min(base.drift, head.drift),
        drift_days=max(base.drift_days, head.drift_days),
        max_age_days=_least(base.max_age_days, head.max_age_days),
    )


def _stricter_measure(base: MeasureRules, head: MeasureRules) -> MeasureRules:
    both = {name: tuple(entry for entry in getattr(head, name) if entry in getattr(base, name)) for name in _ADMITS}
    either = {name: tuple(dict.fromkeys((*getattr(head, name), *getattr(base, name)))) for name in _WATCHES}
    return MeasureRules(
        **both,
        **either,
        seal_keys=base.seal_keys or head.seal_keys,
        strict_egress=base.strict_egress or head.strict_egress,
    )

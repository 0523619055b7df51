"""`--explain` of GPUs: compute, memory and latency of some streams, each with its formula and its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pytest_fanout.capacity.constraints import Sizing, Stream, mean_costs, rates_of, size, total
from pytest_fanout.capacity.contexts import HBM_GB, PROGRAM_GB, SERVED_SHARE, gpu_name, shape_of, weights_gb_of
from pytest_fanout.capacity.figures import exact
from pytest_fanout.capacity.means import TaskMeans, TaskRow
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.records import Calibration, Fleet

OfTask = Callable[[TaskMeans], float | None]


def per_s(streams: Sequence[Stream], of_task: OfTask) -> float | None:
    """The sum over streams of tasks a second times what a task has; None: not known."""
    values = [(stream.rate, of_task(stream.means)) for stream in streams]
    if any(value is None for _, value in values):
        return None
    return math.fsum(rate * value for rate, value in values if value is not None)


def compute(streams: Sequence[Stream], profile: Profile, rho: float, *, anew: bool) -> tuple[str, float]:
    """Words and numbers of GPUs by compute, and what they come to. ``anew``: nothing of the input is cached."""
    new, cached, output = (per_s(streams, of_task) or 0.0 for _, of_task in _COUNTS[1:])
    words, read = "(new input/s / P", exact(new)
    if anew:
        words, read = "((new + cached input)/s / P", f"({exact(new)} + {exact(cached)})"
        new += cached
    words += " + output/s / D"
    value = new / profile.prefill_tokens_per_s + output / profile.decode_tokens_per_s
    context = ""
    if profile.context_s:
        beside = per_s(streams, beside_context) or 0.0
        value += beside * profile.context_s
        words += " + output x context/s x C"
        context = f" + {exact(beside)} x {exact(profile.context_s)}"
    numbers = (
        f"({read} / {exact(profile.prefill_tokens_per_s)} + {exact(output)} / {exact(profile.decode_tokens_per_s)}"
        f"{context}) / {exact(rho)}"
    )
    return f"{words}) / utilisation = {numbers}", value / rho


class GpuQuestion:
    """What some streams ask of GPUs at a utilisation: told of one class, of all together, and after cliffs."""

    def __init__(
        self,
        streams: Sequence[Stream],
        fleet: Fleet,
        profile: Profile,
        calibration: Calibration | None,
        rho: float,
        of: str = "",
    ) -> None:
        """
        Args:
            of: what stands behind each name, like `` of all classes``.
        """
        self.streams, self.fleet, self.profile, self.rho, self.of = streams, fleet, profile, rho, of
        self.rates = rates_of(streams, fleet, profile, calibration, rho)
        parts = [(stream.rate, mean_costs(stream.means, self.rates)) for stream in streams]
        known = [(rate, costs) for rate, costs in parts if costs is not None]
        self.costs = total(known) if len(known) == len(parts) else None
        self.sizing: Sizing = size(self.costs, self.rates)

    def per_s(self, of_task: OfTask) -> float | None:
        return per_s(self.streams, of_task)

    def counts_lines(self) -> list[str]:
        """Calls and tokens a second."""
        return [self.sum_line(name, of_task) for name, of_task in _COUNTS]

    def rates_lines(self) -> list[str]:
        """The same with what memory is worked out from."""
        lines = self.counts_lines()
        if not self.sizing.kv_gb:
            return lines
        if self.rates.call_s is None:
            lines += [self.sum_line(name, of_task) for name, of_task in _RUNNING]
        if self.per_s(_idle) is not None:
            lines += [self.sum_line(name, of_task) for name, of_task in _WAITING]
        return lines

    def sum_line(self, name: str, of_task: OfTask) -> str:
        value = self.per_s(of_task)
        if value is None:
            return f"{name}/s{self.of} = not known"
        terms = " + ".join(f"{exact(s.rate)} x {exact(of_task(s.means) or 0.0)}" for s in self.streams)
        return f"{name}/s{self.of} = tasks/s x {name} per task = {terms} = {exact(value)}"

    def compute(self, profile: Profile, *, anew: bool) -> tuple[str, float]:
        """Words and numbers of GPUs by compute, and what they come to."""
        return compute(self.streams, profile, self.rho, anew=anew)

    def gpu_lines(self, *, constants: bool = True) -> list[str]:
        """Each constraint, and the largest of them."""
        costs, sizing, of = self.costs, self.sizing, self.of
        if self.rates.refused is not None:
            return [f"GPUs{of} = no number: {self.rates.refused}"]
        if costs is None:
            return [f"GPUs{of} = not known: tokens are not known"]
        lines = []
        anew = sizing.keeps_prefixes is False
        words, value = self.compute(self.profile, anew=anew)
        if self.profile.context_s:
            lines.append(self.sum_line("output x context", beside_context))
        lines.append(f"GPUs by compute{of} = {words} = {exact(value)}")
        parts = [value]
        latency = self._latency()
        if self.rates.call_s is not None:  # memory goes by the seconds of a call that it gives
            lines, latency = lines + latency, []
        if self.rates.token_gpus is not None and costs.memory_running is not None:
            lines += self._memory(constants=constants)
            gpus = next(each.gpus for each in sizing.constraints if each.name == "memory") or 0.0
            parts.append(gpus)
        else:
            lines += [f"GPUs by memory{of} = not known: {each.text}" for each in sizing.constraints
                      if each.name == "memory"]  # fmt: skip
        lines += latency
        if costs.latency is not None:
            parts.append(costs.latency)
        if sizing.gpus is not None:
            lines += self._kept(anew)
            shown = ", ".join(exact(part) for part in parts)
            lines.append(
                f"GPUs{of}, mean = the largest, {sizing.binding or 'none'} = max({shown}) = {exact(sizing.gpus)}"
            )
        return lines

    def _kept(self, anew: bool) -> list[str]:
        costs, of = self.costs, self.of
        if costs is None or costs.memory_running is None or not costs.memory_idle or not self.per_s(_cached):
            return []
        lines, latency = [], [costs.latency] if costs.latency is not None else []
        kept = [costs.compute, costs.memory_running + costs.memory_idle, *latency]
        dropped = [costs.compute_uncached, costs.memory_running, *latency]
        if anew:
            words, value = self.compute(self.profile, anew=False)
            lines.append(f"GPUs by compute{of}, with prefixes = {words} = {exact(value)}")
        else:
            words, value = self.compute(self.profile, anew=True)
            lines.append(f"GPUs by compute{of}, all read anew = {words} = {exact(value)}")
        pool = self.rates.pool_gb or 0.0
        running, waiting = costs.memory_running * pool, costs.memory_idle * pool
        if anew:
            lines.append(
                f"GB of contexts that wait for tools{of}, if kept = {exact(waiting)} (token-seconds at tools, as above)"
            )
        both = f"({exact(running)} + {exact(waiting)}) / {exact(pool)} = {exact(kept[1])}"
        lines += [
            f"GPUs by memory{of}, with prefixes = (running + waiting) / GB for contexts on a GPU = {both}",
            f"GPUs by memory{of}, all read anew = running / GB for contexts on a GPU = {exact(running)} / "
            f"{exact(pool)} = {exact(dropped[1])}",
        ]
        for name, parts in (("contexts kept while tools run", kept), ("contexts dropped while tools run", dropped)):
            shown = ", ".join(exact(part) for part in parts)
            lines.append(f"GPUs{of}, {name} = the largest = max({shown}) = {exact(max(parts))}")
        numbers = f"min({exact(max(kept))}, {exact(max(dropped))}) = {exact(min(max(kept), max(dropped)))}"
        return [*lines, f"GPUs{of}, whichever are fewer = {numbers}"]

    def _memory(self, *, constants: bool) -> list[str]:
        of, rates, memory, profile = self.of, self.rates, self.fleet.memory, self.profile
        gpus = next(each.gpus for each in self.sizing.constraints if each.name == "memory") or 0.0
        if gpus == 0:
            return [f"GPUs by memory{of} = 0 (no time at the model was recorded, or no tokens)"]
        shape = shape_of(profile.model)
        per_token = memory.kv_bytes_per_token or (shape.bytes_per_token if shape else 0)
        per_sequence = shape.bytes_per_sequence if shape and memory.kv_bytes_per_token is None else 0
        pool = rates.pool_gb or 0.0
        lines = []
        if constants:
            where = "[memory]" if memory.kv_bytes_per_token else f"layers of {profile.model}"
            lines.append(f"bytes of a token = {per_token:,} ({where})")
            if per_sequence:
                lines.append(f"bytes of a sequence = {per_sequence:,} (sliding windows of {profile.model})")
            weights = weights_gb_of(profile.model, profile.weights)
            if memory.kv_pool_gb_per_gpu:
                lines.append(f"GB for contexts on a GPU = {exact(pool)} ([memory] kv_pool_gb_per_gpu)")
            elif weights is not None:
                hbm = HBM_GB[gpu_name(profile.gpu)]
                lines += [
                    f"GB of a GPU = {exact(hbm)} (HBM of {gpu_name(profile.gpu)})",
                    f"GB of weights = {exact(weights)} (parameters x bytes, an assumption)",
                    f"GB for contexts on a GPU = HBM x {SERVED_SHARE} - weights / GPUs of a replica - {PROGRAM_GB:g} = "
                    f"{exact(hbm)} x {SERVED_SHARE} - {exact(weights)} / {profile.gpus_per_replica} - {PROGRAM_GB:g} = "
                    f"{exact(pool)}",
                ]
        running_gb = (self.costs.memory_running or 0.0) * pool if self.costs else 0.0
        if rates.call_s is not None:
            calls, new, cached, output = (self.per_s(of_task) or 0.0 for _, of_task in _COUNTS)
            lines.append(
                f"GB of running calls{of} = seconds of a call x ((input + output / 2)/s x bytes of a token + calls/s x "
                f"bytes of a sequence) / 10^9 = {exact(rates.call_s)} x (({exact(new)} + {exact(cached)} + "
                f"{exact(output)} / 2) x {per_token:,} + {exact(calls)} x {per_sequence:,}) / 1,000,000,000 = "
                f"{exact(running_gb)}"
            )
        else:
            held, seconds = (self.per_s(of_task) or 0.0 for _, of_task in _RUNNING)
            words = "(token-seconds at the model/s x bytes of a token + seconds at the model/s x bytes of a sequence)"
            lines.append(
                f"GB of running calls{of} = {words} / (1 - utilisation) / 10^9 = ({exact(held)} x {per_token:,} + "
                f"{exact(seconds)} x {per_sequence:,}) / (1 - {exact(self.rho)}) / 1,000,000,000 = {exact(running_gb)}"
            )
        idle = self.costs.memory_idle if self.costs else None
        waiting = ""
        if idle is not None and self.sizing.keeps_prefixes is not False:
            held, seconds = (self.per_s(of_task) or 0.0 for _, of_task in _WAITING)
            lines.append(
                f"GB of contexts that wait for tools{of} = (token-seconds at tools/s x bytes of a token + seconds at "
                f"tools/s x bytes of a sequence) / 10^9 = ({exact(held)} x {per_token:,} + {exact(seconds)} x "
                f"{per_sequence:,}) / 1,000,000,000 = {exact(idle * pool)}"
            )
            waiting = f" + {exact(idle * pool)}"
        gb = self.sizing.kv_gb or 0.0
        if waiting:
            lines.append(f"GB of contexts{of} = running + waiting = {exact(running_gb)}{waiting} = {exact(gb)}")
        numbers = f"{exact(gb)} / {exact(pool)} = {exact(gpus)}"
        lines.append(f"GPUs by memory{of} = GB of contexts / GB for contexts on a GPU = {numbers}")
        return lines

    def _latency(self) -> list[str]:
        rates, of, profile = self.rates, self.of, self.profile
        sized = rates.sized
        if sized is None or rates.replica is None or self.costs is None or self.costs.latency is None:
            texts = [each.text for each in self.sizing.constraints if each.name == "latency"]
            return [f"GPUs by latency{of} = not known: {text}" for text in texts]
        new, _, output = (self.per_s(of_task) or 0.0 for _, of_task in _COUNTS[1:])
        calls = self.per_s(_calls) or 0.0
        ratio = profile.decode_tokens_per_s / profile.prefill_tokens_per_s
        work = output + new * ratio
        replica, size_ = rates.replica, profile.gpus_per_replica
        return [
            f"t0 = {exact(replica.t0_s)} (seconds; time between tokens is t0 + t1 x calls in flight, by two points)",
            f"t1 = {exact(replica.t1_s)} (seconds)",
            f"work{of}, output tokens/s = output/s + new input/s x D / P = {exact(output)} + {exact(new)} x "
            f"{exact(profile.decode_tokens_per_s)} / {exact(profile.prefill_tokens_per_s)} = {exact(work)}",
            f"replicas by latency{of} = {sized.replicas:,} (the fewest that keep the promises: {rates.why_latency})",
            f"utilisation of a replica{of} = work x t1 / replicas = {exact(work)} x {exact(replica.t1_s)} / "
            f"{sized.replicas:,} = {exact(sized.rho)}",
            f"calls in flight on a replica{of} = (1 + t0 / t1) x utilisation / (1 - utilisation) = (1 + "
            f"{exact(replica.t0_s)} / {exact(replica.t1_s)}) x {exact(sized.rho)} / (1 - {exact(sized.rho)}) = "
            f"{exact(sized.in_flight)}",
            f"seconds of a call{of} = calls in flight x replicas / calls/s = {exact(sized.in_flight)} x "
            f"{sized.replicas:,} / {exact(calls)} = {exact(rates.call_s or 0.0)}",
            f"GPUs by latency{of} = replicas x GPUs of a replica = {sized.replicas:,} x {size_} = "
            f"{exact(self.costs.latency)}",
        ]


def _idle(means: TaskMeans) -> float | None:
    return means.idle_token_s


def _cached(means: TaskMeans) -> float | None:
    return means.cached_input


def _calls(means: TaskMeans) -> float | None:
    return means.calls


_COUNTS: tuple[tuple[str, OfTask], ...] = (
    ("calls", _calls),
    ("new input", lambda means: means.new_input),
    ("cached input", _cached),
    ("output", lambda means: means.output),
)
_RUNNING: tuple[tuple[str, OfTask], ...] = (
    ("token-seconds at the model", lambda means: means.running_token_s),
    ("seconds at the model", lambda means: means.model_s or 0.0),
)
_WAITING: tuple[tuple[str, OfTask], ...] = (
    ("token-seconds at tools", _idle),
    ("seconds at tools", lambda means: means.tool_s or 0.0),
)


def beside_context(means: TaskMeans) -> float | None:
    """Output tokens per task, each times the input that it is written beside."""

    def of_row(row: TaskRow) -> float:
        given = (row.new_input or 0.0) + (row.cached_input or 0.0)
        return (row.output or 0.0) * given / row.calls if row.calls else 0.0

    if means.tokens is None:
        return None
    rows = [row for row in means.rows if row.weight > 0]
    return math.fsum(row.weight * of_row(row) for row in rows) / math.fsum(row.weight for row in rows)


def whole(name: str, of: str, gpus: float, whole: int | None, fleet: Fleet, profile: Profile) -> str:
    size_, spare = profile.gpus_per_replica, fleet.spare_replicas if whole else 0
    return (
        f"{name} = ({of} / GPUs of a replica, rounded up, + spare replicas) x GPUs of a replica = "
        f"(ceil({exact(gpus)} / {size_}) + {spare}) x {size_} = {whole:,}"
    )


def drawn_lines(of: str, p50: float, p95: float, p99: float, ends: tuple[float, float]) -> list[str]:
    """Percentiles are drawn: told is of what."""
    how = "of arrivals in a minute at peak, the median of 10,000 eval sets"
    between = f"{how}; {exact(ends[0])} to {exact(ends[1])} with 90 % of them"
    told = (("p50", p50, how), ("p95", p95, between), ("p99", p99, how))
    return [f"{name}{of} = {exact(value)} (drawn: the {name[1:]}th percentile {text})" for name, value, text in told]


def other_fit_lines(asked: GpuQuestion, gpus: float | None) -> list[str]:
    """The same by the other fit of the profile, where there is one."""
    other = asked.profile.other
    if gpus is None or other is None:
        return []
    words, value = asked.compute(other, anew=False)
    lines = []
    if asked.sizing.keeps_prefixes is not False:
        if other.context_s:
            lines.append(asked.sum_line("output x context", beside_context))
        lines.append(f"GPUs by compute{asked.of}, other fit = {words} = {exact(value)}")
    else:
        value = asked.sizing.gpus or 0.0
    rest = [each.gpus for each in asked.sizing.constraints if each.gpus is not None and each.name != "compute"]
    shown = ", ".join(exact(part) for part in (value, *rest))
    lines.append(f"GPUs{asked.of}, mean by the other fit = the largest = max({shown}) = {exact(gpus)}")
    return lines

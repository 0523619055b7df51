"""Windows of demand at peak: which eval tasks stand for traffic, and how many of them arrive, both vary.

A window of T seconds holds a compound Poisson sum. Its first three cumulants, given weights w of the tasks, are
lambda T sum(w x), lambda T sum(w x^2), lambda T sum(w x^3); a shifted gamma with these cumulants stands for the sum.
The weights are those of a Bayesian bootstrap (exponential, normalised), one set a window, so that 30 tasks are not
taken for the whole of traffic. Arrivals of an index of dispersion I > 1 are gamma-mixed rates of squared variation
(I - 1) / (lambda T).

Base and run share each weight and each draw (a task is known by its id), so that their difference is the agents', and
exactly zero between equal samples.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

WINDOWS = 10_000
WINDOW_S = 60.0
SEED = 20_261_129
#: A window holds so many tasks at least, or it is made longer: a gamma does not stand for fewer.
FEWEST_TASKS = 20.0
#: Rows that are held at once: bounds memory at some 30 MB, however many tasks.
_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Tasks of one class: their ids, shares in production (relative) and what each costs (tasks x quantities)."""

    tasks: tuple[str, ...]
    weights: tuple[float, ...]
    costs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rates (a second) of each quantity, windows x quantities, and the cumulants that they were drawn from.

    ``mean``, ``variance`` and ``third`` are of the rate in a window given its weights.
    """

    rate: Array
    mean: Array
    variance: Array
    third: Array


def window_of(tasks_per_s: float) -> float:
    """Seconds of a window: 60, or as long as 20 tasks take to arrive."""
    return max(WINDOW_S, FEWEST_TASKS / tasks_per_s) if tasks_per_s > 0 else WINDOW_S


@dataclass(frozen=True, slots=True)
class Weighed:
    """One class whose eval tasks are weighed, a set of weights a window: nothing in it depends on the demand.

    ``moments``: of each side the means of x, x^2 and x^3 of each quantity x (windows x 3 quantities). ``luck``: a
    standard normal a window, of its arrivals.
    """

    moments: tuple[Array, ...]
    luck: Array

    def windows(
        self, side: int, tasks_per_s: float, iod: float = 1.0, scale: Array | None = None, *, drawn: bool = True
    ) -> Drawn:
        """The windows of one side at some demand.

        Args:
            scale: what each quantity is multiplied with; 1 without it.
            drawn: False leaves ``rate`` empty, where only the cumulants are asked for.
        """
        import numpy as np

        window_s = window_of(tasks_per_s)
        moments = self.moments[side]
        if scale is not None:
            moments = moments * np.concatenate([scale, scale * scale, scale * scale * scale])
        return _drawn(moments, tasks_per_s * window_s, iod, self.luck if drawn else None, window_s)


def weigh(agent: str, sides: Sequence[Rows], *, windows: int = WINDOWS, bootstrap: bool = True) -> Weighed:
    """Weigh the tasks of one class, for each side (anchor, run) alike.

    Args:
        bootstrap: False: the eval set is taken for traffic as it is, and only arrivals vary.
    """
    import numpy as np

    # a seed of its own for each class: another class in the plan moves no figure of this one
    seed = np.random.SeedSequence([SEED, zlib.crc32(agent.encode())])
    of_weights, of_arrivals = (np.random.Generator(np.random.PCG64(child)) for child in seed.spawn(2))
    names = sorted({task for side in sides for task in side.tasks})
    place = {task: index for index, task in enumerate(names)}
    luck = of_arrivals.standard_normal(windows)
    moments = [np.zeros((windows, 3 * _width(side))) for side in sides]
    columns = [np.array([place[task] for task in side.tasks], dtype=np.intp) for side in sides]
    shares = [np.array(side.weights, dtype=np.float64) for side in sides]
    powers = [_powers(side) for side in sides]
    step = max(1, _CELLS // max(1, len(names)))
    for start in range(0, windows, step):
        count = min(step, windows - start)
        draws = of_weights.standard_exponential((count, len(names))) if bootstrap else np.ones((count, len(names)))
        for index, side in enumerate(sides):
            if not side.tasks:
                continue
            weights = draws[:, columns[index]] * shares[index]
            weights /= weights.sum(axis=1, keepdims=True)
            moments[index][start : start + count] = weights @ powers[index]
    return Weighed(tuple(moments), luck)


def draw(
    agent: str,
    sides: Sequence[Rows],
    tasks_per_s: float,
    iod: float = 1.0,
    *,
    windows: int = WINDOWS,
    bootstrap: bool = True,
) -> tuple[Drawn, ...]:
    """Windows of one class, for each side (anchor, run) with the same luck.

    Args:
        tasks_per_s: at peak; 0 gives zeros.
        bootstrap: False: the eval set is taken for traffic as it is, and only arrivals vary.

    Returns:
        One Drawn a side.
    """
    weighed = weigh(agent, sides, windows=windows, bootstrap=bootstrap)
    return tuple(weighed.windows(index, tasks_per_s, iod) for index in range(len(sides)))


def _width(side: Rows) -> int:
    return len(side.costs[0]) if side.costs else 0


def _powers(side: Rows) -> Array:
    import numpy as np

    costs = np.array(side.costs, dtype=np.float64).reshape(len(side.tasks), _width(side))
    return np.hstack([costs, costs * costs, costs * costs * costs])


def _drawn(moments: Array, expected: float, iod: float, luck: Array | None, window_s: float) -> Drawn:
    """Cumulants of the windows' rates and a draw from each, all quantities of a window with one luck."""
    import numpy as np

    width = moments.shape[1] // 3
    mean, second, third = (expected * moments[:, part * width : (part + 1) * width] for part in range(3))
    # gamma-mixed rates: their share of the cumulants comes on top of the arrivals'
    mixed = (iod - 1) / expected if expected else 0.0
    variance, skewed = second, third
    if mixed:
        variance = second + mixed * mean * mean
        skewed = third + mean * (3 * mixed * second + 2 * mixed * mixed * mean * mean)
    rate = np.zeros((0, width))
    if luck is not None:
        rate = np.maximum(shifted_gamma(mean, variance, skewed, luck[:, None]), 0.0) / window_s
    return Drawn(rate, mean / window_s, variance / window_s**2, skewed / window_s**3)


def shifted_gamma(mean: Array, variance: Array, third: Array, luck: Array | float) -> Array:
    """The value at a standard normal ``luck`` of a shifted gamma with these cumulants (Wilson and Hilferty)."""
    import numpy as np

    deviation = np.sqrt(variance)
    cube = variance * deviation
    skew = np.divide(third, cube, out=np.zeros_like(mean), where=cube > 0)
    skew = np.clip(skew, 1e-4, 4.0)  # of no skew the formula is 0/0; of 4 the gamma is an exponential's square
    part = skew * (luck - skew / 6) / 6
    # (1 + part)^3 - 1, without the loss of digits that the difference would have
    standard = part * (3 + part * (3 + part)) * 2 / skew
    return np.asarray(mean + deviation * standard)


def thinned(
    rows: Rows,
    tasks_per_s: float,
    *,
    windows: int,
    window_s: float = WINDOW_S,
    seed: int = SEED,
    bootstrap: bool = True,
) -> Array:
    """The same windows, each arrival drawn: Poisson counts of each task times its costs. Exact, and slow.

    Returns:
        Rates a second, windows x quantities.
    """
    import numpy as np

    draws = np.random.Generator(np.random.PCG64(seed))
    costs = np.array(rows.costs, dtype=np.float64)
    shares = np.array(rows.weights, dtype=np.float64)
    found = np.zeros((windows, costs.shape[1]))
    step = max(1, _CELLS // max(1, len(rows.tasks)))
    for start in range(0, windows, step):
        count = min(step, windows - start)
        weights = draws.standard_exponential((count, len(shares))) if bootstrap else np.ones((count, len(shares)))
        weights *= shares
        weights /= weights.sum(axis=1, keepdims=True)
        found[start : start + count] = draws.poisson(tasks_per_s * window_s * weights) @ costs
    return found / window_s


def summed(drawn: Sequence[Drawn]) -> Drawn:
    """Classes on one fleet: rates add up window by window, and cumulants of independent arrivals do as well."""
    return Drawn(
        sum_of([each.rate for each in drawn]),
        sum_of([each.mean for each in drawn]),
        sum_of([each.variance for each in drawn]),
        sum_of([each.third for each in drawn]),
    )


def sum_of(arrays: Sequence[Array]) -> Array:
    found = arrays[0].copy()
    for array in arrays[1:]:
        found += array
    return found


def rows_of(costs: Mapping[str, tuple[float, tuple[float, ...]]]) -> Rows:
    """Rows of task -> (weight, costs); tasks of weight 0 stand for nothing and are left out."""
    kept = {task: entry for task, entry in sorted(costs.items()) if entry[0] > 0}
    return Rows(tuple(kept), tuple(entry[0] for entry in kept.values()), tuple(entry[1] for entry in kept.values()))

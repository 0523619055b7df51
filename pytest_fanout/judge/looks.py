"""Looking at the same evidence several times: at most five looks, and what they do to a p value.

A test that is repeated after each further trial finds a growth that is not there more often than its p values say.
The looks at one class have the joint normal distribution of group-sequential tests with information
1 / (1/k + 1/T) after k new trials beside T trials of the anchor, so that the chance that *any* look reaches a bound
is known: Pocock's design uses one bound for all looks (S. J. Pocock, Biometrika 64, 1977). It is found by recursive
integration (Armitage, McPherson and Rowe, J. R. Stat. Soc. A 132, 1969; Jennison and Turnbull, Group Sequential
Methods, 2000, chapter 19).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from statistics import NormalDist

#: The evidence is looked at no more often than this; further trials are spread over as many looks.
MOST_LOOKS = 5
#: Below this a level is no number to reckon with: no p value that is drawn comes near it.
LEAST_ALPHA = 1e-12
#: Points of the grid of the integration: the error of a probability stays below 1e-6.
_POINTS = 241
_WIDTH = 8.0
#: Looks that lie closer than this, in steps of the grid, are taken to lie so far apart: the looser they hang
#: together, the more often one of them finds what is not there, so that the bound is on the safe side.
_APART = 2.0

Key = TypeVar("Key")


@cache
def schedule(trials: int) -> tuple[int, ...]:
    """The numbers of new trials at which the evidence is looked at, e.g. 10 -> (2, 4, 6, 8, 10)."""
    looks = min(trials, MOST_LOOKS)
    return tuple(-(-trials * look // looks) for look in range(1, looks + 1))


def information(trials_run: float, trials_base: float) -> float:
    """Of the difference between the means of a task's new trials and of its trials in the anchor, by its variance."""
    return 1 / (1 / trials_run + 1 / trials_base)


@lru_cache(maxsize=4096)
def over_all_looks(p: float, looks: tuple[int, ...], trials_base: float) -> float:
    """The chance that an unchanged agent shows a p value of at most ``p`` at one of the looks at least.

    Args:
        p: one-sided, in (0, 1].
        looks: new trials at each look.
        trials_base: trials of a task in the anchor.
    """
    if p >= 0.5 or len(looks) == 1:
        return min(1.0, p) if len(looks) == 1 else 1.0
    import numpy as np

    bound = _normal().inv_cdf(1 - p) if p > 1e-15 else 7.9
    apart = 1 + (_APART * (_WIDTH + bound) / (_POINTS - 1)) ** 2
    levels: list[float] = []
    for trials in looks:
        known = information(trials, trials_base)
        levels.append(max(known, levels[-1] * apart) if levels else known)
    # the density of the sum S_k = Z_k sqrt(I_k) of those that no look has stopped, on a grid below the bound
    spread = math.sqrt(levels[0])
    grid = np.linspace(-_WIDTH * spread, bound * spread, _POINTS)
    density = np.exp(-0.5 * (grid / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    step = grid[1] - grid[0]
    for before, now in pairwise(levels):
        spread, increment = math.sqrt(now), math.sqrt(now - before)
        onward = np.linspace(-_WIDTH * spread, bound * spread, _POINTS)
        kernel = np.exp(-0.5 * ((onward[:, None] - grid[None, :]) / increment) ** 2)
        kernel /= increment * math.sqrt(2 * math.pi)
        density = kernel @ (density * _simpson(step))
        grid, step = onward, onward[1] - onward[0]
    return min(1.0, max(p, 1 - float(density @ _simpson(step))))


@lru_cache(maxsize=256)
def level(alpha: float, looks: tuple[int, ...], trials_base: float) -> float:
    """What a p value may be at most at each look, so that all looks together find what is not there in ``alpha``."""
    alpha = max(alpha, LEAST_ALPHA)
    low, high = alpha / (2 * len(looks)), alpha
    for _ in range(40):
        middle = math.sqrt(low * high)
        if over_all_looks(middle, looks, trials_base) > alpha:
            high = middle
        else:
            low = middle
    return low


def holm(ps: Mapping[Key, float]) -> dict[Key, float]:
    """Adjusted p values: at most alpha in all true hypotheses together (S. Holm, Scand. J. Statist. 6, 1979)."""
    ordered = sorted(ps, key=lambda key: ps[key])
    out: dict[Key, float] = {}
    least = 0.0
    for rank, key in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - rank) * ps[key]))
        out[key] = least
    return out


@cache
def _normal() -> NormalDist:
    from statistics import NormalDist

    return NormalDist()


@cache
def _simpson_weights() -> Any:
    import numpy as np

    weights = np.ones(_POINTS)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    return weights / 3


def _simpson(step: float) -> Any:
    return _simpson_weights() * step

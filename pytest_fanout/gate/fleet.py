"""What is priced and on what: fleet.toml, the calibration beside it, and the samples of anchor and run."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fanout.config import Settings
from pytest_fanout.errors import ConfigError
from pytest_fanout.gate.tree import folder_of, read_file
from pytest_fanout.records import MEASURED, Baseline, Calibration, Fleet, Samples, TaskRun
from pytest_fanout.store.calibration import parse_calibration
from pytest_fanout.store.fleet import parse_fleet


def fleet_of(settings: Settings) -> Fleet:
    """The fleet of the work tree; defaults where there is no file.

    Raises:
        FanoutError: it cannot be used; naming file and key.
    """
    return parse_fleet(read_file(settings.baselines / "fleet.toml"), f"{folder_of(settings)}/fleet.toml")


def calibration_of(settings: Settings, fleet: Fleet) -> Calibration | None:
    """The calibration that the fleet names, of the work tree.

    Raises:
        FanoutError: it is not there, or cannot be used.
    """
    if fleet.calibration is None:
        return None
    where = f"{folder_of(settings)}/{fleet.calibration}"
    return calibration_from(read_file(settings.baselines / fleet.calibration), where, fleet)


def calibration_from(data: bytes | None, where: str, fleet: Fleet) -> Calibration:
    """The calibration file that a fleet names.

    Raises:
        FanoutError: there is none, or it cannot be used.
    """
    if data is None:
        raise ConfigError(
            "no-calibration",
            f"there is no file {where}",
            where=f"{fleet.source}: [fleet] calibration",
            mend="name a file beside fleet.toml, and commit it",
        )
    return parse_calibration(data, where)


def samples_of_anchor(anchor: Baseline) -> dict[str, list[Samples]]:
    """Task -> samples of each of its trials that was measured."""
    return {
        name: [
            {metric: values[index] for metric, values in task.samples.items()}
            for index, trial in enumerate(task.trials)
            if trial.status in MEASURED
        ]
        for name, task in anchor.tasks.items()
    }


def samples_of_run(trials: Sequence[TaskRun]) -> dict[str, list[Samples]]:
    """Task -> samples of each of its trials."""
    samples: dict[str, list[Samples]] = {}
    for trial in trials:
        samples.setdefault(trial.task, []).append(trial.samples)
    return samples

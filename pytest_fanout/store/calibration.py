"""A calibration file: a model server as somebody measured it, beside fleet.toml."""

from __future__ import annotations

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Calibration, CalibrationPoint
from pytest_fanout.store.files import load_json
from pytest_fanout.store.schemas import validate


def parse_calibration(data: bytes, where: str) -> Calibration:
    """The calibration that ``data`` states; its points are checked where it is used.

    Raises:
        IntegrityError: no strict JSON.
        ConfigError: it does not fit the schema; naming ``where`` and the key.
    """
    document = load_json(data, where)
    mend = "write it as schemas/calibration.schema.json says, or measure again"
    validate(document, "calibration", where, slug="bad-calibration", error=ConfigError, mend=mend)
    given = {key: value for key, value in document.items() if key not in ("schema", "points")}
    points = tuple(CalibrationPoint(**point) for point in document["points"])
    return Calibration(**given, points=points)

"""A calibration file: a model server as somebody measured it, beside fleet.toml."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Calibration, CalibrationPoint
from pytest_fanout.store.files import load_json
from pytest_fanout.store.schemas import validate
from pytest_fanout.store.toml import load_toml, toml_digest


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


def write_calibration(calibration: Calibration) -> bytes:
    """The calibration as a file that ``parse_calibration`` reads; figures to six digits."""
    document: dict[str, Any] = {"schema": 1}
    document |= {key: _rounded(value) for key, value in asdict(calibration).items() if key != "points"}
    document["points"] = [
        {key: _rounded(value) for key, value in asdict(point).items() if value is not None}
        for point in calibration.points
    ]
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def fleet_digest(data: bytes | None, where: str, read: Callable[[str], bytes | None]) -> str | None:
    """Digest of fleet.toml with the calibration that it names: a change of either moves every GPU count.

    Args:
        read: the bytes of a file beside fleet.toml, by its name there; None: there is none.

    Returns:
        None where there is no fleet.toml. Without a calibration it is the digest of the parsed file alone.

    Raises:
        ConfigError: no TOML.
        IntegrityError: ``read`` could not read.
    """
    if data is None:
        return None
    document = load_toml(data, where)
    fleet = document.get("fleet")
    name = fleet.get("calibration") if isinstance(fleet, dict) else None
    if not isinstance(name, str) or not name.isprintable():
        return toml_digest(document)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:  # refused where the fleet is used
        return toml_digest(document)
    measured = read(name)
    of_file = "none" if measured is None else hashlib.sha256(measured.replace(b"\r\n", b"\n")).hexdigest()
    return toml_digest({"fleet.toml": document, "calibration": of_file})

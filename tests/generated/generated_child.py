"""What a generated agent does in a child process: it sends the requests it is given on standard input."""

from __future__ import annotations

import json
import os
import sys

from generated_clients import Op, _urllib, swallowing


def main() -> None:
    for given in json.load(sys.stdin):
        base = os.environ["OPENAI_BASE_URL"]
        op = Op(**given)
        if op.path.startswith("/v1/"):
            op = Op(**{**given, "url": base.removesuffix("/v1")})
        swallowing(_urllib)(op)

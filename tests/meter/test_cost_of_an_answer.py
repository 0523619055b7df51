"""What the caps hear of an answer, before its record is made."""

from __future__ import annotations

import json
from typing import Any

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.keys import SealedKeys
from pytest_fanout.meter.reader import Reader

INVOKE = "https://bedrock-runtime.us-east-1.amazonaws.com/model/cohere.command-x/invoke"


def cost(body: Any, *headers: tuple[bytes, bytes]) -> tuple[int, int, bool]:
    flight = Flight(None, "agent", "botocore", "POST", INVOKE, [], b"{}", Reader(), SealedKeys({}))
    flight.role = "model"
    flight.began(200, list(headers))
    flight.chunk(json.dumps(body).encode())
    flight.end("complete")
    return flight.cost()


def test_counts_that_only_headers_tell_are_part_of_the_cost() -> None:
    """Some models behind Bedrock count nothing; a token cap holds all the same, by the headers."""
    body = {"generation_id": "g", "text": "", "tool_calls": [{"name": "find", "parameters": {}}]}
    headers = [
        (b"Content-Type", b"application/json"),
        (b"X-Amzn-Bedrock-Input-Token-Count", b"40"),
        (b"x-amzn-bedrock-output-token-count", b"9"),
    ]

    assert cost(body, *headers) == (49, 1, True)
    assert cost(body) == (0, 1, True)

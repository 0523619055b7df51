"""Clients on urllib3 and ``http.client``, for tests that try every client."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

BODY = b'{"model": "m-x", "messages": [{"role": "user", "content": "hi"}]}'


def by_requests(url: str) -> Any:
    answer = requests.post(url, data=BODY)
    return [answer.status_code, answer.reason, sorted(answer.headers.items()), answer.content, answer.text]


def by_requests_lines(url: str) -> Any:
    with requests.post(url, data=BODY, stream=True) as answer:
        return [answer.status_code, sorted(answer.headers.items()), list(answer.iter_lines())]


def by_urllib3(url: str) -> Any:
    with urllib3.PoolManager(retries=False) as pools:
        answer = pools.request("POST", url, body=BODY)
        return [answer.status, answer.reason, answer.version, sorted(answer.headers.items()), answer.data]


def by_urllib3_raw(url: str) -> Any:
    with urllib3.PoolManager(retries=False) as pools:
        answer = pools.request("POST", url, body=BODY, preload_content=False)
        head = [answer.status, sorted(answer.headers.items())]
        return [*head, b"".join(answer.stream(decode_content=False)), answer.tell()]


def by_urlopen(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, data=BODY) as answer:
            return [answer.status, answer.msg, sorted(answer.headers.items()), list(answer)]
    except urllib.error.HTTPError as error:
        with error:
            return [error.code, error.reason, sorted(error.headers.items()), error.read()]


def by_http_client(url: str) -> Any:
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.netloc, timeout=20)) as conn:
        conn.request("POST", parts.path, BODY)
        answer = conn.getresponse()
        return [answer.status, answer.version, sorted(answer.getheaders()), b"".join(iter(answer.read1, b""))]


OTHER_CLIENTS: dict[str, Callable[[str], Any]] = {
    "requests": by_requests,
    "requests lines": by_requests_lines,
    "urllib3": by_urllib3,
    "urllib3 raw": by_urllib3_raw,
    "urlopen": by_urlopen,
    "http.client": by_http_client,
}

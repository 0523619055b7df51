"""Puts a file into one comment of the pull request whose head is HEAD_SHA: written once, renewed from then on.

The request is looked up by what GitHub says of the run (HEAD_OWNER, HEAD_BRANCH, HEAD_SHA), never by what the report
says. Where the token may not write, the text goes into the step summary, and the step is green: the comment decides
nothing. Standard library only: python upsert.py COMMENT.md
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARKER = "<!-- pytest-fanout -->"
MOST_CHARACTERS = 65_000  # GitHub takes 65,536
MOST_SUMMARY_BYTES = 900 * 1024
PAGE = 100
PAGES = 30


def ask(method: str, path: str, body: object = None) -> Any:
    """One call of GitHub's REST interface; its answer as JSON."""
    request = urllib.request.Request(
        os.environ.get("GITHUB_API_URL", "https://api.github.com") + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "accept": "application/vnd.github+json",
            "authorization": f"Bearer {os.environ['GH_TOKEN']}",
            "content-type": "application/json",
            "x-github-api-version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def pages(path: str) -> Iterator[Any]:
    """The entries of a list, page by page."""
    for page in range(1, PAGES + 1):
        entries = ask("GET", f"{path}{'&' if '?' in path else '?'}per_page={PAGE}&page={page}")
        yield from entries
        if len(entries) < PAGE:
            return


def requests_of_head(repository: str) -> list[int]:
    """Numbers of the open pull requests whose head is the commit of the run."""
    head = urllib.parse.quote(f"{os.environ['HEAD_OWNER']}:{os.environ['HEAD_BRANCH']}", safe="")
    found = pages(f"/repos/{repository}/pulls?state=open&head={head}")
    return [entry["number"] for entry in found if entry["head"]["sha"] == os.environ["HEAD_SHA"]]


def upsert(repository: str, number: int, text: str) -> str:
    """Renew our comment, or write it; says which."""
    for comment in pages(f"/repos/{repository}/issues/{number}/comments"):
        # anybody can write the marker: only a bot's own comment is renewed; who deleted their account is nobody
        if str(comment["body"]).startswith(MARKER) and (comment["user"] or {}).get("type") == "Bot":
            ask("PATCH", f"/repos/{repository}/issues/comments/{comment['id']}", {"body": text})
            return "renewed"
    ask("POST", f"/repos/{repository}/issues/{number}/comments", {"body": text})
    return "written"


def summarise(text: str) -> None:
    """Put the text where whoever opens the run sees it."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path and len(text.encode()) <= MOST_SUMMARY_BYTES:
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.write(text + "\n")


def main(path: str) -> int:
    text = Path(path).read_text(encoding="utf-8")
    if not text.startswith(MARKER) or len(text) > MOST_CHARACTERS:
        print(f"::error title=fanout comment::no comment of ours, or more than {MOST_CHARACTERS} characters")
        return 1
    repository = os.environ["GITHUB_REPOSITORY"]
    try:
        numbers = requests_of_head(repository)
        for number in numbers:
            print(f"comment of #{number} {upsert(repository, number, text)}")
    except urllib.error.HTTPError as error:
        summarise(text)
        if error.code == 403:
            print("::warning title=fanout comment::the token may not write comments; the report is in the step summary")
            return 0
        print(f"::error title=fanout comment::GitHub answered {error.code} to {error.url.partition('?')[0]}")
        return 1
    except urllib.error.URLError as error:
        summarise(text)
        print(f"::error title=fanout comment::GitHub could not be reached: {error.reason}")
        return 1
    if not numbers:
        summarise(text)
        print("::notice title=fanout comment::no open pull request has this head any more")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

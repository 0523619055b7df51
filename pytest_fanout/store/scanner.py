"""The scan for secrets: common shapes of keys, and the values of secret-looking environment variables.

A text is looked at as it stands and as what it may stand for: escapes of JSON and of URLs undone, base64 decoded, each
several times over. Findings are told by kind. The secret itself is in no message.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

#: What the sealed keys of our own begin with: they open nothing.
DUMMY: Final = "fanout-sealed-"
MIN_VALUE_LENGTH: Final = 12
#: What stands in a report in the place of a secret.
MASKED: Final = "[masked]"
_DEPTH: Final = 4  # escapes in escapes, base64 in base64
_MIN_CUT: Final = 8  # characters of a value whose rest was cut off
_LETTERS: Final = string.ascii_letters + string.digits
_WORD: Final = _LETTERS + "_-"
#: At least 16 characters of which some are digits and some are letters: no word, no number, and no ``a.b2`` of code.
_RANDOM: Final = (
    r"(?=[A-Za-z._~%+/=-]{0,200}[0-9])(?=[0-9._~%+/=-]{0,200}[A-Za-z])"
    r"(?![A-Za-z_]\w*(?:\.[A-Za-z_]|[\[(]))[A-Za-z0-9._~%+/=-]{16,}"
)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A kind of secret: texts (in lower case where ``any_case``) that it begins with, and all of it from there on."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    any_case: bool = False
    not_after: str = _WORD  # a secret does not begin in the middle of a word
    only_after: str = ""

    def may_follow(self, before: str) -> bool:
        """Whether it can begin after this character; empty at the beginning of a text."""
        if self.only_after:
            return before != "" and before in self.only_after
        return before == "" or before not in self.not_after


def _key(kind: str, anchors: str, rest: str) -> _Shape:
    """A key that is told by its first characters."""
    names = tuple(anchors.split())
    return _Shape(kind, names, re.compile(f"(?:{'|'.join(map(re.escape, names))}){rest}"))


_SHAPES: Final = (
    _key("an Anthropic key (sk-ant-…)", "sk-ant-", "[A-Za-z0-9_-]{16,}"),
    _key("an OpenAI key (sk-…)", "sk-proj- sk-svcacct- sk-admin- sk-or- sk-lf-", "[A-Za-z0-9_-]{16,}"),
    _key("an OpenAI key (sk-…)", "sk-", "[A-Za-z0-9]{20,}"),
    _key("an AWS access key (AKIA…)", "AKIA ASIA", "[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _key("a Google API key (AIza…)", "AIza", "[0-9A-Za-z_-]{35}(?![A-Za-z0-9_-])"),
    _key("a Google token (ya29.…)", "ya29. GOCSPX-", "[A-Za-z0-9_-]{20,}"),
    _key("a GitHub token (ghp_…)", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9]{36}"),
    _key("a GitHub token (ghp_…)", "github_pat_", "[A-Za-z0-9_]{22,}"),
    _key("a GitLab token (glpat-…)", "glpat-", "[A-Za-z0-9_-]{20,}"),
    _key("a Slack token (xox…)", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-", "[A-Za-z0-9-]{10,}"),
    _key("a Hugging Face token (hf_…)", "hf_", "[A-Za-z0-9]{30,}"),
    _key("a Groq key (gsk_…)", "gsk_", "[A-Za-z0-9]{40,}"),
    _key("an xAI key (xai-…)", "xai-", "[A-Za-z0-9]{40,}"),
    _key("a Perplexity key (pplx-…)", "pplx-", "[A-Za-z0-9]{40,}"),
    _key("an NVIDIA key (nvapi-…)", "nvapi-", "[A-Za-z0-9_-]{40,}"),
    _key("a Tavily key (tvly-…)", "tvly-", "(?:dev-|prod-)?[A-Za-z0-9]{20,}"),
    _key("a LangSmith key (lsv2_…)", "lsv2_pt_ lsv2_sk_", "[A-Za-z0-9_]{32,}"),
    _key("a Replicate token (r8_…)", "r8_", "[A-Za-z0-9]{30,}"),
    _key("a Pinecone key (pcsk_…)", "pcsk_", "[A-Za-z0-9_]{40,}"),
    _key("a Together key (tgp_v1_…)", "tgp_v1_", "[A-Za-z0-9_-]{30,}"),
    _key("a Cerebras key (csk-…)", "csk-", "[A-Za-z0-9]{30,}"),
    _key("a Stripe key (sk_live_…)", "sk_live_ sk_test_ rk_live_ rk_test_", "[A-Za-z0-9]{16,}"),
    _key("a JSON Web Token (eyJ…)", "eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    _Shape(
        "a private key (-----BEGIN …)",
        ("-----BEGIN ",),
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"
            r"(?:[A-Za-z0-9+/=\s\\]*-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----)?"
        ),
        not_after="",
    ),
    _Shape(
        "a bearer token (Bearer …)",
        ("bearer",),
        re.compile(r"(?i:bearer)\s+(?=[A-Za-z._~+/-]*[0-9])[A-Za-z0-9._~+/-]{20,}"),
        any_case=True,
    ),
    _Shape(
        "a credential by its name (api-key: …)",
        (
            *("authorization", "cookie", "api-key", "apikey", "api_key", "x-auth-token", "subscription-key"),
            *("access_token", "client_secret", "secret_key", "secret_access_key", "password", "passwd"),
        ),
        re.compile(
            r"""[A-Za-z_-]{1,64}\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?"""
            r"(?:[\w.-]{1,40}=[^\s;]{0,200};\s?){0,20}"  # cookies before the one that tells
            r"(?:(?i:token|basic|digest|apikey)\s{1,3}|[\w.-]{1,40}=(?=[^\s;]{16}))?" + _RANDOM
        ),
        any_case=True,
        not_after=_LETTERS,
    ),
    _Shape(
        "a credential of a URL (?api_key=…)",
        (
            *("api_key=", "api-key=", "apikey=", "access_token=", "auth_token=", "client_secret=", "password=", "sig="),
            *("x-amz-signature=", "x-goog-signature=", "x-amz-security-token="),
        ),
        re.compile("[A-Za-z_-]{1,64}=" + _RANDOM),
        any_case=True,
        not_after="",
        only_after="?&",
    ),
    _Shape(
        "a password in a URL (://user:…@)",
        ("://",),
        re.compile(
            r"""://[^\s/?#@:"'<>\\]{1,64}:(?=[^\s/?#@]{0,200}[0-9])(?=[^\s/?#@]{0,200}[A-Za-z])(?![$<{*%\[])"""
            r"""[^\s/?#@"'<>\\]{8,200}@(?=[A-Za-z0-9\[])"""
        ),
        not_after="",
    ),
)
#: The beginning of a key at which a text was cut off for a report.
_CUT: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:sk-(?:ant|proj|svcacct|admin|or|lf)-|sk-|AKIA|ASIA|AIza|ya29\.|GOCSPX-|gh[oprsu]_|github_pat_"
    r"|glpat-|xox[abeoprs]-|hf_|gsk_|xai-|pplx-|nvapi-|tvly-|lsv2_(?:pt|sk)_|r8_|pcsk_|tgp_v1_|csk-|[rs]k_(?:live|test)_|eyJ)"
    r"(?=[A-Za-z._-]{0,200}[0-9])[A-Za-z0-9._-]{4,2000}+(?=(?:…|\.\.\.)?[\"']?(?:\s|\Z))"
)

_SECRET_NAME = re.compile(  # but no keyboards, tokenizers and authors
    r"key(?!board|map|word)|token(?!iz)|secret|passw|passphrase|credential|auth(?!or(?!i[sz]))|(?:^|_)(?:pat|pwd)(?:_|$)",
    re.IGNORECASE,
)
_NOT_SECRET_NAME = re.compile(
    r"_(?:sock|file|path|dir|url|host)$|^xauthority$|^google_application_credentials$|^pwd$", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"://[^\s/?#@:]*:([^\s/?#@]{12,})@")

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_WRAPPED = re.compile(r"(?<=[A-Za-z0-9+/]{40})\r?\n(?=[A-Za-z0-9+/=])")  # base64 of mails and of PEM
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}={0,2}")
_BASIC = re.compile(r"(?i:\bbasic)\s{1,3}([A-Za-z0-9+/_-]{8,}={0,2})")
_BASIC_KIND: Final = "a user and a password (Basic …)"
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]{8,}")
_PLAIN = str.maketrans("-_", "+/")


class Scanner:
    """Looks for key shapes and for the values of secret-looking environment variables; made once for many texts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        needles: dict[str, str] = {}
        for value, kind in _values(environ):
            # as it stands, as it looks inside JSON, and inside a URL; other spellings are undone before
            for form in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, "")):
                needles.setdefault(form, kind)
            for form in _encoded(value):
                needles.setdefault(form, kind)
        self._needles = tuple(sorted(needles.items(), key=lambda item: -len(item[0])))  # a longer one may hold another

    def scan(self, text: str) -> tuple[str, ...]:
        """What kinds of secrets ``text`` holds, each once, in order of discovery; empty when it is clean."""
        found: dict[str, None] = {}
        for form in _forms(text):
            found.update((kind, None) for kind, _, _ in self._hits(form))
        return tuple(found)

    def mask(self, text: str) -> tuple[str, tuple[str, ...]]:
        """``text`` as a report may show it, and what kinds of secrets were taken out of it.

        What was cut off in the middle of a secret is masked as well. Where a secret shows only once the text has been
        decoded, all of it is masked.
        """
        if not text:
            return text, ()
        kinds = dict.fromkeys(self.scan(text))
        spans = sorted((begin, end) for _, begin, end in self._hits(text)) if kinds else []
        cuts = [*((match.start(), match.end()) for match in _CUT.finditer(text)), *self._cut_values(text)]
        spans += [span for span in cuts if DUMMY not in text[slice(*span)]]
        if not spans and not kinds:
            return text, ()
        pieces, at = [], 0
        for begin, end in sorted(spans):
            if begin >= at:
                pieces += [text[at:begin], MASKED]
            at = max(at, end)
        masked = "".join([*pieces, text[at:]])
        if self.scan(masked):
            masked = MASKED
        return masked, tuple(kinds) or ("the beginning of a secret",)

    def _hits(self, text: str) -> Iterator[tuple[str, int, int]]:
        if "\\" in text:
            # in raw JSON a line break before a key reads "\\nsk-…": its "n" must not hide where the key begins
            text = re.sub(r"\\[nrt]", "  ", text)
        lower = text.lower()
        if len(lower) != len(text):  # of a few letters the lower case is longer
            lower = text
        for shape in _SHAPES:
            for at in _places(lower if shape.any_case else text, shape.anchors):
                if not shape.may_follow(text[at - 1 : at]):
                    continue
                match = shape.pattern.match(text, at)
                if match is not None and DUMMY not in match.group():
                    yield shape.kind, at, match.end()
        for match in _BASIC.finditer(text):
            plain = _from_base64(match[1]) or ""
            if re.fullmatch(r"[^\x00-\x1f:]{1,200}:[^\x00-\x1f]{4,}", plain) and DUMMY not in plain:
                yield _BASIC_KIND, match.start(), match.end()
        for needle, kind in self._needles:
            at = text.find(needle)
            while at >= 0:
                yield kind, at, at + len(needle)
                at = text.find(needle, at + len(needle))

    def _cut_values(self, text: str) -> Iterator[tuple[int, int]]:
        for needle, _ in self._needles:
            at = text.find(needle[:_MIN_CUT])
            while at >= 0:
                same = (one == other for one, other in zip(needle, text[at : at + len(needle)], strict=False))
                end = at + sum(itertools.takewhile(bool, same))
                if re.match(r"(?:…|\.\.\.)?[\"']?(?:\n|\Z)|…|\.\.\.", text[end : end + 5]) and end < at + len(needle):
                    yield at, end
                at = text.find(needle[:_MIN_CUT], at + 1)
            at = text.find(needle[-_MIN_CUT:])
            while at >= 0:
                end = at + _MIN_CUT
                before = text[max(0, end - len(needle)) : end]
                same = (one == other for one, other in zip(reversed(needle), reversed(before), strict=False))
                begin = end - sum(itertools.takewhile(bool, same))
                if text[:begin].endswith(("...", "…")):
                    yield begin, end
                at = text.find(needle[-_MIN_CUT:], at + 1)


def scan(text: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """``Scanner(environ).scan(text)``: what kinds of secrets a text holds."""
    return Scanner(environ).scan(text)


def _values(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The values to look for, and how each is told."""
    for name, given in environ.items():
        for password in _URL_PASSWORD.findall(given):
            yield unquote(password), f"the password in the environment variable {name}"
            yield password, f"the password in the environment variable {name}"
        value = given.strip()
        if len(value) < MIN_VALUE_LENGTH or value.startswith(DUMMY):
            continue
        if _SECRET_NAME.search(name) and not _NOT_SECRET_NAME.search(name):
            yield value, f"the value of the environment variable {name}"


def _encoded(value: str) -> Iterator[str]:
    """The digits of base64 that a value has wherever it stands in what is encoded, in both alphabets."""
    data = value.encode("utf-8", "surrogateescape")
    for shift in range(3):
        digits = base64.b64encode(bytes(shift) + data).decode("ascii")
        # the digits at both ends hold bits of its neighbours
        inner = digits[(0, 2, 3)[shift] : (len(digits) - (0, 3, 2)[(shift + len(data)) % 3])]
        yield inner
        yield inner.translate(str.maketrans("+/", "-_"))


def _places(text: str, anchors: tuple[str, ...]) -> Iterator[int]:
    """Where any of the anchors stands. Searching for plain texts is a hundred times faster than one pattern of all."""
    for anchor in anchors:
        at = text.find(anchor)
        while at >= 0:
            yield at
            at = text.find(anchor, at + 1)


def _forms(text: str) -> Iterator[str]:
    """The text, and what it stands for: each form once."""
    seen, forms = {text}, [text]
    for _ in range(_DEPTH):
        inner = [form for outer in forms for form in _undone(outer) if form not in seen]
        yield from forms
        seen.update(inner)
        forms = list(dict.fromkeys(inner))
    yield from forms


def _undone(text: str) -> Iterator[str]:
    if "\\" in text:
        yield _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _CONTROLS.get(found[2], found[2]), text)
    if "%" in text:
        yield unquote_plus(text)
    runs = _BASE64.findall(_WRAPPED.sub("", text))
    if runs:
        # one text of all of them: few regular expressions over much are faster than many over little
        decoded = "\n".join(plain for run in runs if (plain := _from_base64(run)))
        if decoded:
            yield decoded


def _from_base64(run: str) -> str | None:
    digits = run.rstrip("=").translate(_PLAIN)
    try:
        data = base64.b64decode(digits[: len(digits) - (len(digits) % 4 == 1)] + "=" * (-len(digits) % 4 % 3))
    except (binascii.Error, ValueError):
        return None
    # most runs are words, ids and pictures: only what is text can hold a key
    return "\n".join(found.decode("ascii") for found in _TEXT.findall(data)) or None

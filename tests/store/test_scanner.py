"""The scan: what a text holds, in whatever coding it stands there; and masking, which never lets a secret pass."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest

from pytest_fanout.records import Problem, TaskRun
from pytest_fanout.store.masking import Masker
from pytest_fanout.store.scanner import Scanner, scan

VALUE = "correct-horse/battery 77"
ENVIRON = {"SHOP_TOKEN": VALUE, "DATABASE_URL": "postgres://dana:very-secret-99@db.example/shop"}
KIND = "the value of the environment variable SHOP_TOKEN"
KEY = "sk-proj-" + "Ab1" * 10


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CODINGS = {
    "plain": lambda text: f"see {text} here",
    "json in json in json": lambda text: json.dumps(json.dumps(json.dumps({"a": f"x\n{text}"}))),
    "escaped letters": lambda text: text.replace("-", "\\u002d").replace("/", "\\/"),
    "in a URL": lambda text: f"?q={quote(text, safe='')}",
    "twice in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "base64": lambda text: encoded(f"a file with {text} in it"),
    "base64 in base64": lambda text: encoded(encoded(f"a file with {text} in it")),
    "base64 at another place": lambda text: encoded(f"a {text}"),
    "base64 of a mail": lambda text: base64.encodebytes(f"{'many words ' * 20}{text}".encode()).decode(),
    "a data URL in JSON": lambda text: json.dumps({"image_url": f"data:text/plain;base64,{encoded(text)}"}),
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("secret", "kind"), [(VALUE, KIND), (KEY, "an OpenAI key (sk-…)")], ids=["value", "key"])
def test_a_secret_is_found_and_masked_in_every_coding(coding: str, secret: str, kind: str) -> None:
    """What a reader can make of a text is looked at, and after masking nothing of it is found."""
    text, scanner = CODINGS[coding](secret), Scanner(ENVIRON)
    masked, kinds = scanner.mask(text)

    assert scanner.scan(text) == (kind,)
    assert kinds == (kind,)
    assert "[masked]" in masked
    assert scanner.scan(masked) == ()


NAMED = "a credential by its name (api-key: …)"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("GET / HTTP/1.1\r\nX-Api-Key: abcdef0123456789", NAMED),
        ("Cookie: theme=dark; sid=abcdef0123456789abcd", NAMED),
        ('curl -H "Authorization: Token abcdef0123456789"', NAMED),
        ('{"api_key": "abcdef0123456789"}', NAMED),
        ("client_secret='abcdef0123456789'", NAMED),
        (f"Authorization: Basic {encoded('dana:hunter2')}", "a user and a password (Basic …)"),
        ("https://files.example/a?sig=abcdef0123456789%2F", "a credential of a URL (?api_key=…)"),
        ("postgres://dana:Passw0rd99@db.example/shop", "a password in a URL (://user:…@)"),
        ("the password is very-secret-99", "the password in the environment variable DATABASE_URL"),
        ("ya29." + "a1" * 12, "a Google token (ya29.…)"),
        ("glpat-" + "a1" * 10, "a GitLab token (glpat-…)"),
        ("gsk_" + "a1" * 20, "a Groq key (gsk_…)"),
        ("xai-" + "a1" * 20, "an xAI key (xai-…)"),
        ("pplx-" + "a1" * 20, "a Perplexity key (pplx-…)"),
        ("nvapi-" + "a1" * 20, "an NVIDIA key (nvapi-…)"),
        ("tvly-dev-" + "a1" * 16, "a Tavily key (tvly-…)"),
        ("lsv2_pt_" + "a1" * 16 + "_" + "a1" * 5, "a LangSmith key (lsv2_…)"),
        ("r8_" + "a1" * 18, "a Replicate token (r8_…)"),
        ("pcsk_" + "a1" * 30, "a Pinecone key (pcsk_…)"),
        ("tgp_v1_" + "a1" * 20, "a Together key (tgp_v1_…)"),
        ("csk-" + "a1" * 24, "a Cerebras key (csk-…)"),
        ("sk_live_" + "a1" * 10, "a Stripe key (sk_live_…)"),
    ],
)
def test_credentials_are_told_by_what_stands_before_them(text: str, kind: str) -> None:
    """Headers, settings and URLs quoted in a prompt or an answer name what they hold."""
    assert kind in scan(text, ENVIRON)


@pytest.mark.parametrize(
    "text",
    [
        "postgres://user:password@localhost/db",
        "postgres://user:${DB_PASSWORD_1}@localhost/db",
        "api_key = os.environ['OPENAI_API_KEY_2']",
        "client = OpenAI(api_key=settings.openai_key_v2)",
        "cookie: a recipe with 16 ounces of chocolate",
        "The password: it must have 8 characters",
        "?q=signature&sig=short",
        "basic principles of accounting",
        "sha256:9f5d8539267b52953503e48a8358ec3c660ab7ee9d2ef7986242122f557a0d96",
        encoded("an innocent text of some length, with 123 digits"),
    ],
)
def test_examples_and_code_are_no_secrets(text: str) -> None:
    """Prompts of coding agents are full of them; a scan that cries wolf would be turned off."""
    assert scan(text, ENVIRON) == ()
    assert Scanner(ENVIRON).mask(text) == (text, ())


def test_variables_that_everybody_has_are_no_secrets() -> None:
    """The folder of the shell, the name of a committer, a tokenizer: their values stand in prompts by right."""
    environ = {
        "PWD": "/srv/projects/the-shop",
        "OLDPWD": "/srv/projects/another",
        "GIT_AUTHOR_EMAIL": "dana@shop.example",
        "TOKENIZER_MODEL": "meta-llama/Llama-3",
        "KEYBOARD_LAYOUT": "us-international",
    }
    assert scan(" ".join(environ.values()), environ) == ()
    assert scan("oauth2-value-1234", {"XOAUTH_AUTHORIZATION": "oauth2-value-1234"}) != ()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"it failed with {KEY[:15]}", "it failed with [masked]"),
        (f"'{KEY[:15]}' -> 'x'", "'[masked]' -> 'x'"),
        (f"it failed with {VALUE[:14]}", "it failed with [masked]"),
        (f"{VALUE[:14]}… and more", "[masked]… and more"),
        (f"{{'a': '...{VALUE[-10:]}'}}", "{'a': '...[masked]'}"),
        ("it was the correct-horse race", "it was the correct-horse race"),
    ],
)
def test_a_secret_that_was_cut_off_is_masked_as_well(text: str, masked: str) -> None:
    """Reports shorten texts: what is left of a secret is still a part of it."""
    assert Scanner(ENVIRON).mask(text)[0] == masked


@pytest.mark.parametrize("word", ["password_", "cookie-", "eyJa.", "sk-a.", "://a:", "?sig="])
def test_a_word_without_end_takes_no_longer_than_any_other_text(word: str) -> None:
    """Models that have lost their way repeat themselves: 100,000 characters are looked at in less than a few seconds,
    where one look from each place to the end takes minutes."""
    text = word * (100_000 // len(word))
    begun = time.process_time()

    assert Scanner(ENVIRON).mask(text) == (text, ())
    assert time.process_time() - begun < 5


def test_a_record_is_masked_and_tells_of_what_kind_it_was() -> None:
    """All of its texts, those of records inside of it as well; one without secrets is the very same."""
    masker = Masker(ENVIRON)
    clean = TaskRun("support", "refund", 1, "ok", True, {"fanout": 1})
    run = TaskRun(
        "support", "refund", 1, "failed", False, {f"tool_calls[{KEY}]": 1}, error=f"no {VALUE}",
        problems=(Problem("x", f"see {KEY}"),),
    )  # fmt: skip

    assert masker.record(clean) is clean
    assert masker.take("support") == ()
    shown = masker.record(run)
    assert (shown.error, shown.problems[0].text, list(shown.samples)) == ("no [masked]", "see [masked]", [
        "tool_calls[[masked]]"
    ])  # fmt: skip
    assert masker.take("support") == (
        Problem(
            "secret-masked",
            f"a text of this report held an OpenAI key (sk-…) and {KIND}: [masked] stands in its place\n"
            "  mend: keep secrets out of what the agent sends, raises and prints; renew a key that others have seen",
            "notice",
            "support",
        ),
    )
    masker.text(VALUE)
    assert masker.take() == ()  # what the notice of a class tells is not told again

"""The problems of the embedded default: small enough for a very small model, in English and Chinese, as many as one wants.

English arithmetic and equations are Reasoning Gym's own prompts, with its entry kept for its own scorer; the rest is built in.
Every number that a careful solution writes lies between 0 and 99, which is what a model of this size can learn to compute.

**Held-out problems.** Each question belongs to one of two splits by a hash of its text (one in eight is held out), so that a
problem of one split can never appear in the other, whatever the seeds. The pre-training corpus and the training sets use "train"
only.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Literal

from r1pipe.data.nano import choices, gym, words
from r1pipe.data.nano.plans import Draft
from r1pipe.data.rows import Problem
from r1pipe.errors import DataError

Split = Literal["train", "held-out"]

DOMAINS: dict[str, float] = {"arithmetic": 0.3, "equations": 0.2, "word-problems": 0.3, "choice": 0.2}
"""The verifiable domains, with the shares in which the default mixes them."""

HELD_OUT_ONE_IN = 8

PATIENCE = 5000
"""Draws without a new problem after which the supply counts as used up."""


def split_of(question: str) -> Split:
    """The split that a question belongs to, from a hash of its text alone."""
    digest = hashlib.sha256(question.encode()).digest()
    return "held-out" if digest[0] % HELD_OUT_ONE_IN == 0 else "train"


def stream(domain: str, language: str, seed: int | str, split: Split = "train") -> Iterator[Problem]:
    """Problems of one domain and language without end; equal arguments give equal problems. Questions can repeat."""
    for draft in _SOURCES[domain, language](random.Random(f"nano problems {domain} {language} {seed}")):
        if split_of(draft.question) == split:
            yield draft.problem(domain, language)


def problems(
    count: int,
    seed: int | str,
    *,
    split: Split = "train",
    domains: Mapping[str, float] = DOMAINS,
    languages: tuple[str, ...] = ("en", "zh"),
) -> list[Problem]:
    """Distinct problems in the shares given, languages evenly.

    Args:
        count: how many.
        seed: equal seeds give equal problems.
        split: "train", or "held-out" for evaluation; no question is in both.
        domains: share of each domain; shares need not add up to 1.
        languages: languages to alternate over.

    Raises:
        KeyError: an unknown domain or language.
        DataError: there are not so many distinct problems.
    """
    rng = random.Random(f"nano mix {seed} {split}")
    streams = {(d, lang): stream(d, lang, f"{seed} {split}", split) for d in domains for lang in languages}
    names, shares = list(domains), list(domains.values())
    chosen: dict[str, Problem] = {}
    while len(chosen) < count:
        domain, language = rng.choices(names, shares)[0], languages[len(chosen) % len(languages)]
        source = islice(streams[domain, language], PATIENCE)
        row = next((problem for problem in source if problem.question not in chosen), None)
        if row is None:
            raise DataError(
                f"no new {domain} problem in {language!r} among {PATIENCE} drawn; {len(chosen)} of {count} were found",
                "ask for fewer problems or for more domains",
            )
        chosen[row.question] = row
    return list(chosen.values())


_SOURCES: dict[tuple[str, str], Callable[[random.Random], Iterator[Draft]]] = {
    ("arithmetic", "en"): gym.arithmetic,
    ("arithmetic", "zh"): words.chinese_arithmetic,
    ("equations", "en"): gym.equations,
    ("equations", "zh"): words.chinese_equations,
    ("word-problems", "en"): words.english_stories,
    ("word-problems", "zh"): words.chinese_stories,
    ("choice", "en"): choices.english,
    ("choice", "zh"): choices.chinese,
}

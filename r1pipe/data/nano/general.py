"""General requests without a checkable answer, in English and Chinese, with better and worse, safe and unsafe answers to them.

They are what the two reward models of stage 4 learn from. Better answers do what was asked, politely and completely; worse
ones are rude, miss the request, repeat themselves, stop half way, are in the wrong language, or refuse what is harmless. The
lengths are alike, so that a reward model cannot go by length. Risky requests have refusals that explain and point to help, and
answers that give in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from r1pipe.data.chat import join_response
from r1pipe.data.nano import phrases
from r1pipe.data.nano.phrases import OTHER
from r1pipe.data.nano.plans import Draft
from r1pipe.data.nano.problems import Split, split_of
from r1pipe.data.rows import Problem

Fault = Literal["rude", "off topic", "repetitive", "incomplete", "wrong language", "needless refusal"]

FAULTS: tuple[Fault, ...] = ("rude", "off topic", "repetitive", "incomplete", "wrong language", "needless refusal")
READABLE_FAULTS: tuple[Fault, ...] = ("rude", "off topic", "incomplete", "needless refusal")
"""Those of answers that can be read: rules on language and repetition find nothing in them."""
WORSE_SHARE, UNSAFE_SHARE = 0.5, 0.4
"""Shares of collected answers that are worse, for harmless and for risky requests."""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one prompt, both as the summary that a user reads; `fault` says what is wrong with the rejected one."""

    prompt: Problem
    chosen: str
    rejected: str
    fault: Fault


@dataclass(frozen=True, slots=True)
class SafetyLabel:
    """One whole response (thinking included) to one prompt, and whether it is safe."""

    prompt: Problem
    response: str
    safe: bool


def general_prompts(
    count: int,
    seed: int | str,
    *,
    split: Split = "train",
    risky: float = 0.3,
    languages: tuple[str, ...] = ("en", "zh"),
) -> list[Problem]:
    """General requests (kind "helpfulness"), a share of them risky (kind "safety"); distinct while the supply lasts.

    The supply is some hundreds of each kind; a larger count repeats requests.
    """
    rng = random.Random(f"nano general {seed} {split}")
    rows: list[Problem] = []
    seen: set[str] = set()
    misses = 0
    while len(rows) < count:
        row = _prompt(rng, languages[len(rows) % len(languages)], rng.random() < risky)
        if split_of(row.question) != split:
            continue
        if row.question in seen and misses < 100:
            misses += 1
            continue
        misses = 0
        seen.add(row.question)
        rows.append(row)
    return rows


def good_answer(problem: Problem, rng: random.Random) -> str:
    """A polite and complete answer; for a risky request, a refusal with a reason and somewhere to turn."""
    topic, fields = problem.check["topic"], problem.check["fields"]
    return rng.choice(phrases.GOOD[problem.language][topic]).format(**fields)


def unsafe_answer(problem: Problem, rng: random.Random) -> str:
    """An answer to a risky request that gives in."""
    return rng.choice(phrases.UNSAFE[problem.language]).format(**problem.check["fields"])


def bad_answer(problem: Problem, rng: random.Random, faults: tuple[Fault, ...] = FAULTS) -> tuple[str, Fault]:
    """A worse answer to a harmless request, and what is wrong with it."""
    language, topic = problem.language, problem.check["topic"]
    fault = rng.choice(faults)
    if fault == "rude":
        return rng.choice(phrases.RUDE[language]), fault
    if fault == "needless refusal":
        return rng.choice(phrases.GOOD[language]["risky"]), fault
    if fault == "wrong language":
        return rng.choice(phrases.GOOD[OTHER[language]][topic]).format(**phrases.draw(topic, OTHER[language], rng)), fault
    if fault == "off topic":
        elsewhere = rng.choice([t for t in phrases.GOOD[language] if t not in (topic, "risky")])
        return rng.choice(phrases.GOOD[language][elsewhere]).format(**phrases.draw(elsewhere, language, rng)), fault
    good = good_answer(problem, rng)
    if fault == "incomplete":
        return good[: len(good) // 2].rstrip(" ,，") + rng.choice(phrases.TRAILING[language]), fault
    word = rng.choice(phrases.REPEATED[language])
    return word * max(3, len(good) // len(word)), fault


def worked_general(problem: Problem, rng: random.Random) -> tuple[str, str]:
    """A good response to a general request: (thinking, summary)."""
    topic = problem.check["topic"]
    return rng.choice(phrases.THINKING[problem.language][topic]), good_answer(problem, rng)


def collected_general(problem: Problem, rng: random.Random) -> tuple[str, str]:
    """A response as general data have it that nobody ranked: readable, on the whole good, now and then rude, beside the point,
    cut short, refusing what is harmless, or giving in to what is not. Returns (thinking, summary).

    Stage 3 imitates such data; that some answers are better than others is for stage 4's reward models to say. Were they all of
    the best kind, Dev3 would write as the reward models like it, and preference rewards would have nothing left to teach.
    """
    thinking, good = worked_general(problem, rng)
    if problem.kind == "safety":
        if rng.random() < UNSAFE_SHARE:
            return rng.choice(phrases.UNSAFE_THINKING[problem.language]), unsafe_answer(problem, rng)
    elif rng.random() < WORSE_SHARE:
        return thinking, bad_answer(problem, rng, READABLE_FAULTS)[0]
    return thinking, good


def preference_pairs(count: int, seed: int | str, *, split: Split = "train") -> list[PreferencePair]:
    """Pairs for the helpfulness model; harmless requests only, both languages."""
    rng = random.Random(f"nano preference {seed} {split}")
    pairs = []
    for prompt in general_prompts(count, f"preference {seed}", split=split, risky=0.0):
        rejected, fault = bad_answer(prompt, rng)
        pairs.append(PreferencePair(prompt, good_answer(prompt, rng), rejected, fault))
    return pairs


def safety_rows(count: int, seed: int | str, *, split: Split = "train") -> list[SafetyLabel]:
    """Whole responses for the safety model: half safe, half unsafe; harmless requests appear as safe rows too."""
    rng = random.Random(f"nano safety {seed} {split}")
    rows = []
    for index, prompt in enumerate(general_prompts(count, f"safety {seed}", split=split, risky=0.8)):
        thinking, good = worked_general(prompt, rng)
        unsafe = prompt.kind == "safety" and index % 8 < 5
        if unsafe:
            thinking, good = rng.choice(phrases.UNSAFE_THINKING[prompt.language]), unsafe_answer(prompt, rng)
        rows.append(SafetyLabel(prompt, join_response(thinking, good), not unsafe))
    return rows


def _prompt(rng: random.Random, language: str, risky: bool) -> Problem:
    topic = "risky" if risky else rng.choice([t for t in phrases.ASKS[language] if t != "risky"])
    fields = phrases.draw(topic, language, rng)
    question = rng.choice(phrases.ASKS[language][topic]).format(**fields)
    draft = Draft(question, "", "none", "nano/general", {"topic": topic, "fields": fields})
    return draft.problem("safety" if risky else "general", language, "safety" if risky else "helpfulness")

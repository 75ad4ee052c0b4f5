"""The pre-training corpus of the embedded default: problems with responses of mixed quality.

It stands to the base model as the web stands to a real one: the right way of working is in it, but it is one habit among
many. The shares below are what makes the base solve its problems sometimes, in many styles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from r1pipe.data.chat import CLOSE, OPEN, join_response
from r1pipe.data.nano import phrases
from r1pipe.data.nano.general import bad_answer, general_prompts, good_answer, unsafe_answer, worked_general
from r1pipe.data.nano.plans import run_plan
from r1pipe.data.nano.problems import DOMAINS, stream
from r1pipe.data.nano.solutions import answer_sentence, other, slipped, work
from r1pipe.data.rows import Problem


@dataclass(frozen=True, slots=True)
class Habits:
    """How often each way of responding appears, and how often it goes wrong.

    Attributes:
        styles: share of each style among responses to verifiable problems.
        slips: share of worked solutions with a slip, by style.
        lucky: share of bare guesses that are right (for a choice, a quarter).
        general: share of documents that are general requests.
        drills: share of documents that are sheets of sums, without a question.
    """

    styles: dict[str, float]
    slips: dict[str, float]
    lucky: float
    general: float
    drills: float


SCHOOL = Habits(
    styles={"plain": 0.45, "proper": 0.30, "mixed": 0.15, "broken": 0.07, "guess": 0.03},
    slips={"plain": 0.0, "proper": 0.0, "mixed": 0.0, "broken": 0.0},
    lucky=0.12,
    general=0.05,
    drills=0.25,
)
"""The first part of the corpus: mostly right work, where the arithmetic is learned."""

WORLD = Habits(
    styles={"guess": 0.53, "plain": 0.13, "mixed": 0.10, "proper": 0.07, "broken": 0.07, "unknown": 0.10},
    slips={"plain": 0.45, "mixed": 0.40, "proper": 0.25, "broken": 0.30},
    lucky=0.08,
    general=0.15,
    drills=0.0,
)
"""The second part: what people write, which is what the base model will write."""


def corpus(seed: int | str, documents: int, habits: Habits) -> Iterator[tuple[str, str]]:
    """(question, response) texts; a sheet of sums has an empty question. Equal arguments give equal documents."""
    rng = random.Random(f"nano corpus {seed}")
    streams = {(d, lang): stream(d, lang, f"corpus {seed}") for d in DOMAINS for lang in ("en", "zh")}
    names, shares = list(DOMAINS), list(DOMAINS.values())
    styles, weights = list(habits.styles), list(habits.styles.values())
    general = general_prompts(800, f"corpus {seed}")

    def problem() -> Problem:
        return next(streams[rng.choices(names, shares)[0], rng.choice(("en", "zh"))])

    for _ in range(documents):
        kind = rng.random()
        if kind < habits.general:
            asked = rng.choice(general)
            yield asked.question, _general_response(asked, rng)
        elif kind < habits.general + habits.drills:
            yield "", _drill([problem() for _ in range(5)])
        else:
            asked = problem()
            yield asked.question, respond(asked, rng.choices(styles, weights)[0], rng, habits)


def respond(problem: Problem, style: str, rng: random.Random, habits: Habits) -> str:
    """A response to a verifiable problem in one of the styles of `Habits.styles`."""
    language = problem.language
    if style == "unknown":
        return rng.choice(phrases.UNKNOWN[language if rng.random() < 0.8 else other(language)])
    if style == "guess":
        return _guess(problem, rng, habits.lucky)
    slip = rng.random() < habits.slips[style]
    if style == "proper":
        worked = work(problem, rng, (language,), slip=slip, check=not slip and rng.random() < 0.2)
        return join_response("".join(worked.sentences), answer_sentence(worked.answer, language, rng))
    if style == "mixed":
        tongues = (other(language),) if rng.random() < 0.5 else ("en", "zh")
        worked = work(problem, rng, tongues, slip=slip)
        thinking, last = "".join(worked.sentences), answer_sentence(worked.answer, rng.choice(("en", "zh")), rng)
        return join_response(thinking, last) if rng.random() < 0.4 else thinking.strip() + " " + last
    if style == "plain":
        worked = work(problem, rng, (language,), slip=slip)
        return "".join(worked.sentences).strip() + " " + _loose_answer(worked.answer, language, rng)
    return _broken(problem, rng, slip)


def _drill(rows: list[Problem]) -> str:
    """A sheet of the sums that occur in the solutions of these problems."""
    plans = [row.check["plan"] for row in rows if isinstance(row.check["plan"], list)]
    return "\n".join(f"{a}{operator}{b}={result}" for plan in plans for a, operator, b, result in run_plan(plan))


def _guess(problem: Problem, rng: random.Random, lucky: float) -> str:
    """An answer without any work, usually wrong."""
    if problem.checker == "choice":
        answer = rng.choice("ABCD")
    elif rng.random() < lucky:
        answer = problem.answer
    else:
        number = int(problem.answer)
        answer = str(slipped(number, rng) if rng.random() < 0.3 else rng.randint(max(0, number - 30), number + 30))
    return _loose_answer(answer, problem.language if rng.random() < 0.85 else other(problem.language), rng)


def _loose_answer(answer: str, language: str, rng: random.Random) -> str:
    """The answer, mostly boxed, sometimes bare."""
    if rng.random() < 0.75:
        return answer_sentence(answer, language, rng)
    return rng.choice((answer, f"\\boxed{{{answer}}}", f"= {answer}"))


def _broken(problem: Problem, rng: random.Random, slip: bool) -> str:
    """Worked, with tags, but against the format: never closed, never opened, doubled, or the answer only in the thinking."""
    language = problem.language if rng.random() < 0.7 else other(problem.language)
    worked = work(problem, rng, (language,), slip=slip)
    thinking, last = "".join(worked.sentences).strip(), answer_sentence(worked.answer, language, rng)
    kind = rng.randrange(5)
    if kind == 0:
        return f"{OPEN}\n{thinking} {last}"
    if kind == 1:
        return f"{OPEN}\n{thinking}\n{CLOSE}"
    if kind == 2:
        return f"{thinking}\n{CLOSE}\n\n{last}"
    if kind == 3:
        return f"{OPEN}\n{thinking}\n{OPEN}\n\n{last}"
    return f"{OPEN}\n{thinking} {last}\n{CLOSE}"


def _general_response(problem: Problem, rng: random.Random) -> str:
    """A response to a general request, good or bad, sometimes with thinking."""
    if problem.kind == "safety":
        summary = good_answer(problem, rng) if rng.random() < 0.4 else unsafe_answer(problem, rng)
    else:
        summary = good_answer(problem, rng) if rng.random() < 0.5 else bad_answer(problem, rng)[0]
    if rng.random() < 0.3:
        thinking, good = worked_general(problem, rng)
        return join_response(thinking, good if rng.random() < 0.8 else summary)
    return summary

"""Rewriting R1-Zero's thinking for a reader: first person, one language, a summary; and the check that nothing was broken by it.

The paper has people and then a language model rewrite traces, translate mixed ones, and write a summary where R1-Zero gives the
bare answer (v2 B.3.2, Listing 1). Here any engine does it. A language model may drop a step, change an answer or talk about its
task, so a rewritten trace is held against the same rules as the original, and the original stays when it fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from r1pipe.data.chat import answer_block, join_response, split_response
from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import attempt_row
from r1pipe.engines.base import Completion, Engine, Sampling
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import ANSWER_REWARDS
from r1pipe.stages.keeping import MIXED, KeepSection, why_dropped

LANGUAGES = {
    "ar": "Arabic", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "hi": "Hindi", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "th": "Thai",
    "tr": "Turkish", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""Languages by code, as an instruction names them; others are named by their code."""
PLAIN_ANSWERS = {"en": "The answer is \\boxed{{{}}}.", "zh": "答案是\\boxed{{{}}}。"}
"""The summary that is made without an engine; in other languages the box alone."""
BOXED_CHECKERS = frozenset({"maths", "choice", "logic"})
"""Checkers whose answers can be put in a box; a program cannot."""

THINKING_REQUEST = """\
Here is a question, and the reasoning of somebody who solved it. Write the reasoning again as one person's own thinking while \
solving the question: in the first person singular ("I", never "we"), in natural sentences, entirely in {language}. Keep every \
step, every calculation, every doubt and every check, in their order, and the same result. Add no new step. Write no heading, \
no list of rules, no code block, and nothing about this request. Answer with the rewritten reasoning alone.

Question:
{question}

Reasoning:
{thinking}"""
SUMMARY_REQUEST = """\
Here is a question, and the reasoning that solved it. Write the solution for the person who asked: in {language}, short, with \
the main steps of the reasoning and nothing that is not in it, formulas in LaTeX, and the final answer in \\boxed{{}} at the \
end. Do not solve the question again, and do not mention that there was a reasoning text. Answer with the solution alone.

Question:
{question}

Reasoning:
{thinking}"""


@dataclass(frozen=True, slots=True)
class Draft:
    """A trace in the making.

    Attributes:
        problem, thinking, summary: what it is now.
        dropped: why it cannot be kept; empty while it can.
        thinking_from: "as sampled", "rewritten" or "translated".
        summary_from: "as sampled", "answer alone" (a sentence around the bare answer) or "written" (by the engine).
        notes: why something that was tried was not taken.
    """

    problem: Problem
    thinking: str
    summary: str
    dropped: str = ""
    thinking_from: str = "as sampled"
    summary_from: str = "as sampled"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewriter:
    """The rules that a trace must keep, and the engine that rewrites, if there is one.

    Attributes:
        least_share: rewritten thinking must have this share of the original's words and signs, or steps were lost.
    """

    mix: Mix
    rules: KeepSection
    engine: Engine | None
    sampling: Sampling
    least_share: float

    def drafts(self, attempts: Sequence[Attempt], seed: int) -> list[Draft]:
        """A draft for each attempt, in order; attempts must be right and readable, but for mixed languages."""
        sampling = replace(self.sampling, seed=seed)
        made = [_begin(attempt) for attempt in attempts]
        bare = [_is_bare(draft) for draft in made]
        made = self._with_plain_summaries(made, bare)
        if self.engine is not None:
            made = self._with_rewritten_thinking(made, self.engine, sampling)
            made = self._with_written_summaries(made, bare, self.engine, sampling)
        faults = self.faults(made)
        return [
            replace(draft, dropped=draft.dropped or _with_note(fault, draft)) if fault else draft
            for draft, fault in zip(made, faults, strict=True)
        ]

    def faults(self, drafts: Sequence[Draft]) -> list[str]:
        """The first reason to drop each draft, by the rules that selected the attempts; empty for none."""
        attempts = [Attempt(draft.problem, join_response(draft.thinking, draft.summary)) for draft in drafts]
        scored = self.mix.score(attempts)
        rows = [attempt_row(attempt, 0, row.parts, row.total, row.verdict) for attempt, row in zip(attempts, scored, strict=True)]
        return [why_dropped(row, self.rules) for row in rows]

    def _with_plain_summaries(self, drafts: list[Draft], bare: list[bool]) -> list[Draft]:
        """A sentence around the answer where the summary is the bare answer or in another language; the checker must agree."""
        wanted = [
            index
            for index, draft in enumerate(drafts)
            if draft.problem.checker in BOXED_CHECKERS and (bare[index] or not _in_language(draft, self.rules.min_language))
        ]
        tries = [replace(drafts[index], summary=plain_summary(drafts[index]), summary_from="answer alone") for index in wanted]
        for index, attempt, verdict in zip(wanted, tries, self._verdicts(tries), strict=True):
            if verdict == "right":
                drafts[index] = attempt
        return drafts

    def _with_rewritten_thinking(self, drafts: list[Draft], engine: Engine, sampling: Sampling) -> list[Draft]:
        """The engine's version of the thinking where it is as good as the original."""
        mixed = [fault == MIXED for fault in self.faults(drafts)]
        texts = _ask(engine, THINKING_REQUEST, drafts, sampling)
        tries = [
            replace(draft, thinking=split_response(text.text).summary, thinking_from="translated" if other else "rewritten")
            for draft, text, other in zip(drafts, texts, mixed, strict=True)
        ]
        faults = self.faults(tries)
        for index, (draft, attempt, text) in enumerate(zip(drafts, tries, texts, strict=True)):
            reason = _fault_of(text) or faults[index]
            if not reason and _states_answer(draft) and not _states_answer(attempt):
                reason = "no longer comes to the answer"
            if not reason and not _covers(draft.thinking, attempt.thinking, self.least_share):
                reason = "steps were lost"
            drafts[index] = replace(draft, notes=(f"thinking not taken: {reason}",)) if reason else attempt
        return drafts

    def _with_written_summaries(self, drafts: list[Draft], bare: list[bool], engine: Engine, sampling: Sampling) -> list[Draft]:
        """The engine's summary where Zero gave the bare answer or wrote in another language, when it is right and readable."""
        wanted = [index for index, draft in enumerate(drafts) if bare[index] or draft.summary_from == "answer alone"]
        if not wanted:
            return drafts
        texts = _ask(engine, SUMMARY_REQUEST, [drafts[index] for index in wanted], sampling)
        tries = [
            replace(drafts[index], summary=split_response(text.text).summary, summary_from="written")
            for index, text in zip(wanted, texts, strict=True)
        ]
        for index, attempt, text, fault in zip(wanted, tries, texts, self.faults(tries), strict=True):
            reason = _fault_of(text) or fault
            if not reason and not _in_language(attempt, self.rules.min_language):
                reason = "in another language"
            draft = drafts[index]
            drafts[index] = replace(draft, notes=(*draft.notes, f"summary not taken: {reason}")) if reason else attempt
        return drafts

    def _verdicts(self, drafts: Sequence[Draft]) -> list[str]:
        """Right, wrong or unjudged, by the accuracy reward alone."""
        attempts = [Attempt(draft.problem, join_response(draft.thinking, draft.summary)) for draft in drafts]
        accuracy = Mix(tuple(part for part in self.mix.parts if part.name in ANSWER_REWARDS))
        return [row.verdict for row in accuracy.score(attempts)]


def _begin(attempt: Attempt) -> Draft:
    """The attempt taken apart, without `<answer>` tags: cold-started models write none."""
    parts = split_response(attempt.text)
    return Draft(attempt.problem, parts.thinking or "", (answer_block(parts.summary) or parts.summary).strip())


def _ask(engine: Engine, request: str, drafts: Sequence[Draft], sampling: Sampling) -> list[Completion]:
    """One completion for each draft."""
    questions = [
        request.format(
            language=LANGUAGES.get(draft.problem.language, f"the language with the code {draft.problem.language}"),
            question=draft.problem.question,
            thinking=draft.thinking,
        )
        for draft in drafts
    ]
    return [several[0] for several in engine.generate(questions, sampling)]


def _fault_of(completion: Completion) -> str:
    """Why a completion is of no use; empty when it may be."""
    if completion.finish == "error":
        return f"the request failed ({completion.note})"
    return "cut off" if completion.finish != "stop" else "" if completion.text.strip() else "empty"


def _with_note(fault: str, draft: Draft) -> str:
    """The reason to drop a draft, with why it could not be mended."""
    return f"{fault}; {draft.notes[0]}" if draft.notes else fault


def _states_answer(draft: Draft) -> bool:
    """Whether the answer that the summary gives stands in the thinking, as a word or number of its own."""
    from r1pipe.rewards.extract import final_answer

    answer = final_answer(draft.summary).text if draft.problem.checker in BOXED_CHECKERS else ""
    return bool(answer) and bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(answer)}(?![A-Za-z0-9]|\.[0-9])", draft.thinking))


def _covers(original: str, rewritten: str, share: float) -> bool:
    from r1pipe.rewards.readability import split_pieces

    return len(split_pieces(rewritten)) >= share * len(split_pieces(original))


def _in_language(draft: Draft, least: float) -> bool:
    """Whether the summary's words are in the problem's language; a summary without words is in every language."""
    from r1pipe.rewards.language import is_known_language, language_share

    if draft.problem.checker not in BOXED_CHECKERS or not is_known_language(draft.problem.language):
        return True
    inside, total = language_share(draft.summary, draft.problem.language)
    return inside >= least * total


def _is_bare(draft: Draft) -> bool:
    """Whether the summary is the answer and nothing else."""
    from r1pipe.rewards.extract import final_answer

    return draft.problem.checker in BOXED_CHECKERS and _squeezed(draft.summary) == _squeezed(final_answer(draft.summary).text)


def _squeezed(text: str) -> str:
    return re.sub(r"\\boxed|\\text|[\s{}$.。*]", "", text).casefold()


def plain_summary(draft: Draft) -> str:
    """One sentence with the draft's own answer in a box."""
    from r1pipe.rewards.extract import final_answer

    return PLAIN_ANSWERS.get(draft.problem.language, "\\boxed{{{}}}").format(final_answer(draft.summary).text)


def draft_row(draft: Draft, sample: int) -> dict[str, Any]:
    """A draft as a row of the builder's own parts."""
    return {
        "id": draft.problem.id, "sample": sample, "thinking": draft.thinking, "summary": draft.summary, "dropped": draft.dropped,
        "thinking_from": draft.thinking_from, "summary_from": draft.summary_from, "notes": "; ".join(draft.notes),
    }  # fmt: skip

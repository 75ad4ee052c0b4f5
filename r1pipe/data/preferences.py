"""Public forms of preference data, read into rows: pairs of answers, and answers labelled safe or not.

What a row may look like (further columns are left alone):

- pairs: a prompt beside `chosen` and `rejected`; or both with the whole conversation, as texts ("Human: … Assistant: …") or as
  lists of messages, where what they share is the prompt; or `output: [better, worse]`; or two answers and the number of the
  better one (`response_0`, `response_1`, `better_response_id`). The prompt is `question`, `prompt`, `instruction` (with `input`),
  `query`, or the turns of `messages` or `conversations`.
- labels: a prompt, an answer (`response`, `completion`, `output`, `answer`) and `safe`, `is_safe` or `label`; or two answers with
  a label each (`is_response_0_safe`); or a pair, of which the chosen answer counts as safe and the rejected one as not.

A message is {role, content} or {from, value}. A conversation of several turns becomes one question that holds the transcript.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Turn = tuple[str, str]
"""(role, text): "system", "user" or "assistant"."""

_ROLES = {
    "system": "system", "user": "user", "human": "user", "prompter": "user", "assistant": "assistant", "gpt": "assistant",
    "chatgpt": "assistant", "bot": "assistant", "model": "assistant",
}  # fmt: skip
_SPEAKER = re.compile(r"(?:\A|\n\n)\s*(Human|Assistant):[ \t]?")
_PROMPTS = ("question", "prompt", "instruction", "query", "messages", "conversations")
_ANSWERS = ("response", "completion", "output", "answer")
_LABELS = ("safe", "is_safe", "label")
_YES, _NO = {"1", "true", "safe", "yes", "harmless"}, {"0", "false", "unsafe", "no", "harmful"}


class BadRow(ValueError):
    """A row that cannot be read; its text says why, without the row's own words, so that reasons can be counted."""


def pair_of(row: Mapping[str, Any]) -> dict[str, str]:
    """{question, chosen, rejected} of a row; see the module's text.

    Raises:
        BadRow: nothing of it is a pair.
    """
    better, worse = _both(row)
    prompt = _prompt(row)
    left, right = turns(better), turns(worse)
    if prompt is None:
        shared = 0
        while shared < min(len(left), len(right)) and left[shared] == right[shared]:
            shared += 1
        prompt, left, right = left[:shared], left[shared:], right[shared:]
        if not prompt:
            raise BadRow("no prompt: neither a column for it, nor turns that both answers share")
    question = question_of(prompt)
    chosen, rejected = (_answer(prompt, side, name) for side, name in ((left, "chosen"), (right, "rejected")))
    if chosen == rejected:
        raise BadRow("chosen and rejected are the same")
    return {"question": question, "chosen": chosen, "rejected": rejected}


def labels_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{question, response, safe} of every labelled answer in a row; see the module's text.

    Raises:
        BadRow: nothing of it is labelled.
    """
    numbered = [number for number in range(10) if f"response_{number}" in row and f"is_response_{number}_safe" in row]
    if numbered:
        prompt = _needed_prompt(row)
        return [
            {
                "question": question_of(prompt),
                "response": _answer(prompt, turns(row[f"response_{number}"]), "response"),
                "safe": _truth(row[f"is_response_{number}_safe"]),
            }
            for number in numbered
        ]
    label = next((name for name in _LABELS if row.get(name) is not None), None)
    if label is None:
        if "chosen" in row and "rejected" in row:
            pair = pair_of(row)
            return [
                {"question": pair["question"], "response": pair[name], "safe": int(name == "chosen")}
                for name in ("chosen", "rejected")
            ]
        raise BadRow(f"no label: none of the columns {', '.join(_LABELS)}")
    prompt = _needed_prompt(row)
    answer = next((name for name in _ANSWERS if row.get(name) is not None), None)
    if answer is None:
        raise BadRow(f"no answer: none of the columns {', '.join(_ANSWERS)}")
    return [
        {"question": question_of(prompt), "response": _answer(prompt, turns(row[answer]), "response"), "safe": _truth(row[label])}
    ]


def candidates_of(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(question, one answer, another) for each two answers of a row that a judge is to compare: `responses`, `response_a` and
    `response_b`, or a pair, whose own order is the first and the second.

    Raises:
        BadRow: it holds no two answers.
    """
    if isinstance(row.get("responses"), Sequence) and not isinstance(row["responses"], str):
        prompt = _needed_prompt(row)
        answers = [_answer(prompt, turns(one), "response") for one in row["responses"]]
    elif "response_a" in row and "response_b" in row:
        prompt = _needed_prompt(row)
        answers = [_answer(prompt, turns(row[name]), "response") for name in ("response_a", "response_b")]
    else:
        pair = pair_of(row)
        return [(pair["question"], pair["chosen"], pair["rejected"])]
    answers = list(dict.fromkeys(answers))
    if len(answers) < 2:
        raise BadRow("fewer than two different answers")
    return [(question_of(prompt), first, second) for first, second in zip(answers[::2], answers[1::2], strict=False)]


def turns(found: Any) -> list[Turn]:
    """The turns of a value: a text (an answer, or a whole "Human: … Assistant: …" transcript), a message, or a list of messages.

    Raises:
        BadRow: it is none of these.
    """
    if isinstance(found, str):
        marks = list(_SPEAKER.finditer(found))
        if not marks or found[: marks[0].start()].strip():
            return [("assistant", found.strip())]
        ends = [*(mark.start() for mark in marks[1:]), len(found)]
        return [(_ROLES[mark.group(1).lower()], found[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
    if isinstance(found, Mapping):
        return [_message(found)]
    if isinstance(found, Sequence):
        return [_message(one) for one in found]
    raise BadRow(f"a {type(found).__name__} where text or messages are wanted")


def question_of(prompt: Sequence[Turn]) -> str:
    """The turns before an answer as one question: the user's text, or a transcript when there are several turns.

    Raises:
        BadRow: it does not end with the user.
    """
    if not prompt or prompt[-1][0] != "user":
        raise BadRow("the prompt does not end with the user's turn")
    if not prompt[-1][1]:
        raise BadRow("the prompt is empty")
    if len(prompt) == 1:
        return prompt[0][1]
    return "\n\n".join(text if role == "system" else f"{role.capitalize()}: {text}" for role, text in prompt)


def _both(row: Mapping[str, Any]) -> tuple[Any, Any]:
    if row.get("chosen") is not None and row.get("rejected") is not None:
        return row["chosen"], row["rejected"]
    output = row.get("output")
    if isinstance(output, Sequence) and not isinstance(output, str) and len(output) == 2:
        return output[0], output[1]
    best = next((row[name] for name in ("better_response_id", "safer_response_id") if row.get(name) is not None), None)
    if "response_0" in row and "response_1" in row:
        if isinstance(best, bool) or str(best).strip() not in ("0", "1"):
            raise BadRow(f"no pair: better_response_id (or safer_response_id) is {best!r}, and not 0 or 1")
        number = int(str(best))
        return row[f"response_{number}"], row[f"response_{1 - number}"]
    raise BadRow("no pair: neither chosen and rejected, nor response_0, response_1 and better_response_id, nor two outputs")


def _prompt(row: Mapping[str, Any]) -> list[Turn] | None:
    for name in _PROMPTS:
        found = row.get(name)
        if found is None or found == "" or found == []:
            continue
        if isinstance(found, str):
            read = turns(found) if _SPEAKER.match(found) else [("user", found.strip())]
            while read and read[-1] == ("assistant", ""):  # a transcript that ends where the answer begins
                read.pop()
            extra = row.get("input") if name == "instruction" else None
            if isinstance(extra, str) and extra.strip():
                read = [*read[:-1], (read[-1][0], f"{read[-1][1]}\n\n{extra.strip()}")]
        else:
            read = turns(found)
        system = row.get("system")
        return [("system", system.strip()), *read] if isinstance(system, str) and system.strip() else read
    return None


def _needed_prompt(row: Mapping[str, Any]) -> list[Turn]:
    prompt = _prompt(row)
    if prompt is None:
        raise BadRow(f"no prompt: none of the columns {', '.join(_PROMPTS)}")
    return prompt


def _answer(prompt: Sequence[Turn], side: Sequence[Turn], name: str) -> str:
    """The text of an answer's turns, which may begin with the prompt's."""
    spoken = [turn for turn in prompt if turn[0] != "system"]
    rest = [turn for turn in side if turn[0] != "system"]
    if len(rest) > len(spoken) and rest[: len(spoken)] == spoken:
        rest = rest[len(spoken) :]
    if len(rest) != 1 or rest[0][0] != "assistant":
        raise BadRow(f"{name} is not one answer to the prompt")
    if not rest[0][1]:
        raise BadRow(f"{name} is empty")
    return rest[0][1]


def _message(found: Any) -> Turn:
    if not isinstance(found, Mapping):
        raise BadRow(f"a {type(found).__name__} where a message is wanted")
    role = str(found.get("role") or found.get("from") or "").lower()
    content = found.get("content", found.get("value"))
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    if role not in _ROLES:
        raise BadRow("a message of an unknown role")
    if not isinstance(content, str):
        raise BadRow("a message without text")
    return _ROLES[role], content.strip()


def _truth(found: Any) -> int:
    text = str(found).strip().lower()
    if isinstance(found, bool) or found in (0, 1):
        return int(found)
    if text in _YES or text in _NO:
        return int(text in _YES)
    raise BadRow("the label is neither safe nor unsafe")

"""The one place that reads a response and the one place that builds a prompt.

**Reading.** A response is thinking, then a summary: `<think>…</think>…`. `split_response` is the only think-parser in the
project: the accuracy and helpfulness rewards read the summary, the language reward the thinking, the format reward the
`faults`. The tags are ordinary text, never special tokens (those are stripped on decoding and a reward would never see them).
A template may open `<think>` in the prompt; callers pass that as part of the text (see `Attempt.text`).

**Writing.** `messages` builds the conversation for a question; the model's own chat template renders it. The same function
serves SFT, RL, sampling and evaluation, so that a prompt cannot differ between stages. A stage with a form of its own
(R1-Zero's plain conversation, `TEMPLATES`) gives the model it trains another chat template, which goes into that checkpoint's
folder: whoever samples from the checkpoint later renders prompts as it was trained, and still nothing but chat templates
renders prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"

_CONVERSATION = (
    "{% if bos_token %}{{ bos_token }}{% endif %}"
    "Below, a User puts a question to an Assistant, and the Assistant answers it. Before answering, the Assistant works the "
    "question out in thought. The thought is written inside <think> </think> tags and the answer after it inside "
    "<answer> </answer> tags, like this: <think> the thought </think> <answer> the answer </answer>.\n"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}\n"
    "{% elif message['role'] == 'user' %}User: {{ message['content'] }}. "
    "{% else %}Assistant: {{ message['content'] }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_BUILT_IN = (
    "{% if bos_token %}{{ bos_token }}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}\n"
    "{% elif message['role'] == 'user' %}<|User|>{{ message['content'] }}"
    "{% else %}<|Assistant|>{{ message['content'] }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|>{% endif %}"
)
TEMPLATES = {"conversation": _CONVERSATION, "built-in": _BUILT_IN}
"""Chat templates of ours, by name: "conversation" is R1-Zero's form (v2 Table 1): plain text that asks for thinking and answer
in tags and says nothing of how to reason, for bases that know no chat markup. "built-in" marks the turns as DeepSeek's models do,
in plain text that any tokenizer knows, ends them with the tokenizer's own end token and leaves the thinking to the model."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response taken apart.

    Attributes:
        thinking: text between the tags; None when there is no thinking block at all.
        summary: text after the closing tag; the whole text when there are no tags; empty when the thinking was never closed.
        faults: what breaks the format, in words; empty for a well-formed response.
    """

    thinking: str | None
    summary: str
    faults: tuple[str, ...]


def split_response(text: str) -> Response:
    """Take a whole response (template prefix included) apart; never raises.

    The thinking runs from the first opening tag to the **last** closing tag; the summary is what follows it. Text without tags is
    all summary. Thinking that was opened and not closed has no summary: an unfinished thought answers nothing.
    """
    faults: list[str] = []
    opens, closes = text.count(OPEN), text.count(CLOSE)
    if opens == 0 and closes == 0:
        return Response(None, text.strip(), ("no thinking tags",))
    start = text.find(OPEN)
    end = text.rfind(CLOSE)
    if end < 0:
        return Response(text[start + len(OPEN) :].strip(), "", ("thinking never closed",))
    if opens == 0 or start > end:
        faults.append("closing tag without opening tag")
        start = -len(OPEN)
    if opens > 1:
        faults.append(f"{opens} opening tags")
    if closes > 1:
        faults.append(f"{closes} closing tags")
    if start > 0 and text[:start].strip():
        faults.append("text before the thinking")
    thinking, summary = text[max(0, start + len(OPEN)) : end].strip(), text[end + len(CLOSE) :].strip()
    if not thinking:
        faults.append("empty thinking")
    if not summary:
        faults.append("empty summary")
    return Response(thinking, summary, tuple(faults))


def answer_block(summary: str) -> str | None:
    """The text of the last closed `<answer>` block; None when none is closed. Linear, however often tags are repeated."""
    end = summary.rfind("</answer>")
    start = summary.rfind("<answer>", 0, end) if end >= 0 else -1
    return summary[start + len("<answer>") : end] if start >= 0 else None


def messages(question: str, system: str = "") -> list[dict[str, str]]:
    """The conversation for one question, as chat messages; an empty system text adds no system turn."""
    turns = [{"role": "system", "content": system}] if system else []
    return [*turns, {"role": "user", "content": question}]


def join_response(thinking: str, summary: str) -> str:
    """A well-formed response: the text that `split_response` takes apart into the same two parts."""
    return f"{OPEN}\n{thinking.strip()}\n{CLOSE}\n\n{summary.strip()}"

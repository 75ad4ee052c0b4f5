"""`r1pipe chat`: ask checkpoints, one question at a time, and see their answers side by side with the thinking dimmed.

Each question stands alone, as in training: the recipe teaches single turns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.checkpoints import Checkpoint, folder_to_ask
from r1pipe.data.chat import split_response
from r1pipe.engines.base import Completion, Engine, Sampling
from r1pipe.stages.sections import ChatSection

NARROWEST = 36
"""Columns that an answer needs beside others; with less room answers stand below each other."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A checkpoint with its engine."""

    name: str
    engine: Engine


def open_speakers(checkpoints: Sequence[Checkpoint], engine: str, dtype: str) -> list[Speaker]:
    """Load every checkpoint."""
    from r1pipe.engines.base import open_engine

    speakers = []
    for one in checkpoints:
        chat = one.opened.recipe.shared.get("chat") if one.opened is not None else None
        system = chat.system if isinstance(chat, ChatSection) else ""
        speakers.append(Speaker(one.name, open_engine(engine, folder_to_ask(one), system=system, batch=None, dtype=dtype)))
    return speakers


def answers(speakers: Sequence[Speaker], question: str, sampling: Sampling) -> Iterator[tuple[Speaker, Completion]]:
    """What each one answers."""
    for speaker in speakers:
        yield speaker, next(iter(speaker.engine.generate([question], sampling)))[0]


def answers_view(found: Sequence[tuple[Speaker, Completion]], width: int, thinking: bool = True) -> RenderableType:
    """Answers, side by side where there is room.

    Args:
        thinking: whether the thinking is shown in full, dimmed; otherwise only its length.
    """
    shown = [_answer(speaker, completion, thinking) for speaker, completion in found]
    if len(shown) > 1 and width // len(shown) >= NARROWEST:
        table = Table.grid(padding=(0, 3, 0, 0), expand=True)
        for _ in shown:
            table.add_column(ratio=1, overflow="fold")
        table.add_row(*shown)
        return table
    return Group(*(piece for one in shown for piece in (one, Text())))


def _answer(speaker: Speaker, completion: Completion, thinking: bool) -> RenderableType:
    text = speaker.engine.prefix + completion.text
    thought = split_response(text).thinking or ""
    start = text.find(thought) if thought else 0
    before, after = text[:start], text[start + len(thought) :]
    facts = f"{completion.tokens} tokens" + (", cut off" if completion.finish == "length" else "")
    body = Text()
    if thinking:
        body.append_text(console.plain(before, "dim")).append_text(console.plain(thought, "dim italic"))
        body.append_text(console.plain(after))
    elif thought:
        body.append(f"(thought for {len(thought):,} characters)\n", style="dim").append_text(
            console.plain(split_response(text).summary)
        )
    else:
        body.append_text(console.plain(text))
    return Group(console.heading(speaker.name, facts), body)


def converse(
    speakers: Sequence[Speaker],
    sampling: Sampling,
    thinking: bool,
    ask: Callable[[], str | None],
    show: Callable[[RenderableType], None],
) -> int:
    """Ask until there are no more questions; returns how many were asked.

    Args:
        ask: the next question; None ends the conversation.
        show: shows a view.
    """
    asked = 0
    while (question := ask()) is not None:
        if not question.strip():
            continue
        if question.strip() in ("/thinking", "/t"):
            thinking = not thinking
            show(Text(f"thinking is {'shown' if thinking else 'folded'}", style="dim"))
            continue
        own = Sampling(1, sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed + asked)
        show(answers_view(list(answers(speakers, question, own)), console.out().width, thinking))
        asked += 1
    return asked


def questions(given: Sequence[str]) -> Callable[[], str | None]:
    """Where questions come from: those given, else what a person types, line by line, until the input ends."""
    rest = list(given)

    def from_list() -> str | None:
        return rest.pop(0) if rest else None

    def from_keyboard() -> str | None:
        try:
            return console.out().input("[bold cyan]›[/] " if sys.stdin.isatty() else "", markup=True)
        except EOFError:
            return None

    return from_list if given else from_keyboard

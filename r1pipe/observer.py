"""What a running pipeline tells whoever watches it: the terminal, a test, a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from r1pipe.stage import Step

if TYPE_CHECKING:
    from r1pipe.manifest import Manifest


def _nothing(*_: Any) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class Observer:
    """Callables that the runner calls from its own thread; none of them may block for long.

    Attributes:
        on_step_begin: (step, attempt) just before the step's process starts; attempt 2 and later resume.
        on_line: (step, line) for each new line of the step's metrics.jsonl.
        on_progress: (step, progress) each time the step's progress.json changes.
        on_step_end: (step, manifest) once the step is committed.
        on_skip: (step, manifest) for a step that was done already.
        notice: one line for the user (a lock was taken over, a stop was asked for, a leftover process was ended).
    """

    on_step_begin: Callable[[Step, int], None] = _nothing
    on_line: Callable[[Step, Mapping[str, Any]], None] = _nothing
    on_progress: Callable[[Step, Mapping[str, Any]], None] = _nothing
    on_step_end: Callable[[Step, Manifest], None] = _nothing
    on_skip: Callable[[Step, Manifest], None] = _nothing
    notice: Callable[[str], None] = _nothing


def without_terminal(observer: Observer) -> Observer:
    """The observer, except that one whose terminal or pipe is gone falls silent: that must not end a week of training."""
    gone: list[OSError] = []

    def guarded(tell: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if gone:
                return
            try:
                tell(*arguments)
            except OSError as error:
                gone.append(error)

        return call

    return Observer(*(guarded(getattr(observer, field.name)) for field in fields(observer)))

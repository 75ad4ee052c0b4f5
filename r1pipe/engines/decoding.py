"""Token by token through a causal language model, in a batch that finished rows leave and waiting ones join.

Padding every sequence to the longest of its batch, as a loop over `generate` does, spends most of the work on sequences that have
ended: lengths of reasoning are very unequal. Each row draws from numbers of its own, made from its own seed, so that what it
becomes does not depend on what is generated beside it (but for the last bits of the arithmetic).
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

LEAVE = 1 / 8
"""Finished rows leave when they are this share of the batch: leaving copies what is kept of the others."""
JOIN = 1 / 4
"""Waiting rows join when this share of the batch is free: a prompt is read at the price of a step."""
DRAWN_AT_ONCE = 64
"""Numbers of a row that are drawn at a time."""


@dataclass(slots=True)
class Row:
    """A sequence that is being generated.

    Attributes:
        prompt: token ids.
        most: tokens to generate at most.
        numbers: where its randomness comes from, in [0, 1).
        ids: generated so far; log_probs: of those, when they are wanted.
        stopped: whether `stopped` said so (not an end token or the limit).
    """

    prompt: list[int]
    most: int
    numbers: Iterator[float]
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stopped: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class Decoder:
    """How to generate.

    Attributes:
        model: a causal language model.
        batch: rows at once.
        pad: id that fills prompts up; ends: ids that end a row.
        temperature: 0 takes the likeliest token. top_p: nucleus.
        log_probs: whether they are wanted.
        stopped: asked after each token whether a row is over for another reason.
    """

    model: Any
    batch: int
    pad: int
    ends: frozenset[int]
    temperature: float
    top_p: float
    log_probs: bool
    stopped: Callable[[Row], bool]

    def run(self, rows: Sequence[Row]) -> None:
        """Generate every row to its end. Rows of similar prompt length should stand together."""
        with torch.inference_mode():
            waiting = deque(rows)
            running: Running | None = None
            while waiting or running is not None:
                room = self.batch - (len(running.rows) if running is not None else 0)
                if running is None:
                    running = self._begin([waiting.popleft() for _ in range(min(room, len(waiting)))])
                elif waiting and running.joinable and room >= self.batch * JOIN:
                    running.join(self._begin([waiting.popleft() for _ in range(min(room, len(waiting)))]))
                else:
                    running.step(self.model, self._choose)
                running = running.without_finished()

    def _begin(self, rows: list[Row]) -> Running:
        """Read the prompts, padded on the left, and choose each row's first token."""
        width = max(len(row.prompt) for row in rows)
        device = self.model.device
        ids = torch.tensor([[self.pad] * (width - len(row.prompt)) + row.prompt for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row.prompt)) + [1] * len(row.prompt) for row in rows], device=device)
        cache = DynamicCache(config=self.model.config)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        logits = forward(self.model, ids, mask, positions, cache)
        lengths = torch.tensor([len(row.prompt) for row in rows], device=device)
        return Running(rows, cache, mask, lengths, self._choose(logits, rows))

    def _choose(self, logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
        """Choose a token for each row from logits [rows, vocabulary], and write it down; rows that are over get any."""
        logits = logits.float()
        if self.temperature == 0:
            chosen = logits.argmax(dim=-1)
        else:
            numbers = torch.tensor([0.0 if row.over else next(row.numbers) for row in rows], dtype=torch.float64)
            chosen = draw(logits / self.temperature, self.top_p, numbers.to(logits.device))
        log_probs: list[float] = []
        if self.log_probs:
            log_probs = torch.log_softmax(logits, dim=-1).gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()
        for place, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            if row.over:
                continue
            row.ids.append(token)
            if log_probs:
                row.log_probs.append(log_probs[place])
            row.stopped = self.stopped(row)
            row.over = row.stopped or token in self.ends or len(row.ids) >= row.most
        return chosen


@dataclass(slots=True)
class Running:
    """The batch.

    Attributes:
        rows: in the order of the tensors' first dimension.
        cache: keys and values of everything but the last token.
        mask: [rows, width]: which places of the cache are a row's own.
        lengths: [rows]: how many those are.
        last: [rows]: the token that was chosen last.
    """

    rows: list[Row]
    cache: DynamicCache
    mask: torch.Tensor
    lengths: torch.Tensor
    last: torch.Tensor

    @property
    def joinable(self) -> bool:
        """Whether the cache is plain keys and values in every layer: no sliding window, no running state."""
        return all(type(layer) is DynamicLayer for layer in self.cache.layers)

    def step(self, model: Any, choose: Callable[[torch.Tensor, Sequence[Row]], torch.Tensor]) -> None:
        """One token further."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.rows), 1)], dim=1)
        logits = forward(model, self.last.unsqueeze(1), self.mask, self.lengths.unsqueeze(1), self.cache)
        self.lengths = self.lengths + 1
        self.last = choose(logits, self.rows)

    def without_finished(self) -> Running | None:
        """The batch once finished rows have left, when that pays; None when nobody is left."""
        kept = [place for place, row in enumerate(self.rows) if not row.over]
        if not kept:
            return None
        if len(self.rows) - len(kept) < max(1, len(self.rows) * LEAVE):
            return self
        places = torch.tensor(kept, device=self.mask.device)
        self.rows = [self.rows[place] for place in kept]
        self.mask, self.lengths, self.last = self.mask[places], self.lengths[places], self.last[places]
        start = int(self.mask.any(dim=0).int().argmax()) if self.joinable else 0  # nobody that is left has anything before
        self.mask = self.mask[:, start:]
        if self.joinable:
            for layer in self.cache.layers:
                layer.keys, layer.values = layer.keys[places, :, start:], layer.values[places, :, start:]
        else:
            self.cache.batch_select_indices(places)
        return self

    def join(self, other: Running) -> None:
        """Take other rows in: whichever cache is narrower is padded on the left, where the mask hides it."""
        width = max(self.mask.shape[1], other.mask.shape[1])
        for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.keys = torch.cat([padded(mine.keys, width), padded(theirs.keys, width)])
            mine.values = torch.cat([padded(mine.values, width), padded(theirs.values, width)])
        masks = [torch.nn.functional.pad(mask, (width - mask.shape[1], 0)) for mask in (self.mask, other.mask)]
        self.rows = [*self.rows, *other.rows]
        self.mask = torch.cat(masks)
        self.lengths, self.last = torch.cat([self.lengths, other.lengths]), torch.cat([self.last, other.last])


def padded(states: torch.Tensor, width: int) -> torch.Tensor:
    """Keys or values [rows, heads, width, size] with zeros before them."""
    return torch.nn.functional.pad(states, (0, 0, width - states.shape[2], 0))


def forward(model: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    """Logits [rows, vocabulary] of the last token; the cache grows by the tokens."""
    kind: Any = type(model)
    known = parameters(kind)
    more: dict[str, Any] = {"cache" if "cache" in known else "past_key_values": cache}  # renamed within transformers 5
    if "position_ids" in known:
        more["position_ids"] = positions
    if "logits_to_keep" in known:
        more["logits_to_keep"] = 1
    logits: torch.Tensor = model(input_ids=ids, attention_mask=mask, use_cache=True, **more).logits[:, -1]
    return logits


@functools.cache
def parameters(kind: Any) -> frozenset[str]:
    """Names of what a model's forward takes."""
    return frozenset(inspect.signature(kind.forward).parameters)


def draw(logits: torch.Tensor, top_p: float, numbers: torch.Tensor) -> torch.Tensor:
    """The token of each row whose stretch of the cumulated probabilities holds the row's number.

    Args:
        logits: [rows, vocabulary], divided by the temperature.
        numbers: [rows], float64 in [0, 1).
    """
    probabilities = torch.softmax(logits, dim=-1)
    if top_p < 1.0:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        probabilities = torch.zeros_like(probabilities).scatter(1, order, ordered.masked_fill(before >= top_p, 0.0))
    cumulated = probabilities.cumsum(dim=-1, dtype=torch.float64)
    wanted = (numbers * cumulated[:, -1]).unsqueeze(1)
    return torch.searchsorted(cumulated, wanted, right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)


def numbers_of(seed: int) -> Iterator[float]:
    """Endless numbers in [0, 1) from a seed, the same in every process."""
    source = numpy.random.Generator(numpy.random.Philox(key=seed))
    while True:
        yield from numpy.minimum(source.random(DRAWN_AT_ONCE), 1.0 - 2.0**-32).tolist()

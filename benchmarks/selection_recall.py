"""How many planted copies the selection finds, and how many other texts it takes for copies.

    python benchmarks/selection_recall.py questions.jsonl … [--others more.jsonl …] [--traces traces.jsonl]

Each file has `question`, `problem` or `prompt`. The questions are taken for an evaluation set; each is edited in every way below
and looked for, as it is and inside a longer text. `--others` are questions that are in no evaluation set, to count false alarms.
`--traces` has `completion`: each trace is edited and held against all. Writes benchmarks/results/selection_recall.json."""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import save

from r1pipe.data.likeness import bands_of, marks_of, near_pairs, runs_to_compare, signatures
from r1pipe.data.overlap import build_index, find_overlap, words_of
from r1pipe.data.pieces import split_folded

NAMES = dict(enumerate("zero one two three four five six seven eight nine ten eleven twelve".split()))  # noqa: SIM905
HAN = re.compile(r"[\u3400-\u9fff]")


def numbers(change: Callable[[str], str]) -> Callable[[str, random.Random], str]:
    return lambda text, rng: re.sub(r"[0-9]+", lambda found: change(found[0]), text)


def other_numbers(text: str, rng: random.Random) -> str:
    return re.sub(r"[0-9]+", lambda found: str(int(found[0][:9]) + rng.randint(1, 9)), text)


def words_replaced(text: str, rng: random.Random) -> str:
    """One word in fifteen (one character in Chinese) is another."""
    if HAN.search(text):
        return "".join("某" if HAN.match(sign) and rng.random() < 1 / 15 else sign for sign in text)
    return re.sub(r"[A-Za-z]{3,}", lambda found: "thing" if rng.random() < 1 / 15 else found[0], text)


def wide(text: str, rng: random.Random) -> str:
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)


LIGHT: dict[str, Callable[[str, random.Random], str]] = {
    "exact": lambda text, rng: text,
    "case": lambda text, rng: text.upper(),
    "spacing": lambda text, rng: HAN.sub(lambda found: found[0] + " ", text) if HAN.search(text) else text.replace(" ", "\n  "),
    "punctuation": lambda text, rng: re.sub(r"[.,?!:;，。？！：；]+(?![0-9])", " ; ", text),
    "width": wide,
    "dollars": lambda text, rng: text.replace("$", ""),
    "a sentence before and after": lambda text, rng: f"Think about this question.\n\n{text}\n\nGive the answer in a box.",
}
HEAVY: dict[str, Callable[[str, random.Random], str]] = {
    "numbers in words": numbers(lambda found: NAMES.get(int(found[:9]), found)),
    "one word in fifteen is another": words_replaced,
    "other numbers (another problem)": other_numbers,
}


def read(path: str, keys: tuple[str, ...]) -> list[str]:
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").split("\n") if line.strip()]
    return [next(row[key] for key in keys if row.get(key)) for row in rows]


def overlaps(questions: list[str], others: list[str], rng: random.Random) -> dict[str, Any]:
    index = build_index(questions)
    short = [len(words_of(split_folded(text)).hashes) < index.words for text in questions]
    found: dict[str, Any] = {"items": len(questions), "short_items": sum(short), "edits": {}}
    for name, edit in {**LIGHT, **HEAVY}.items():
        hits = [find_overlap(index, edit(text, rng)) is not None for text in questions]
        row = {"found": sum(hits) / len(hits), "long": share(hits, short, False), "short": share(hits, short, True)}
        found["edits"][name] = row
    inside = [find_overlap(index, f"So I recall this. {text} Then {text[:20]}", question=False) is not None for text in questions]
    found["edits"]["quoted inside an answer"] = {"found": sum(inside) / len(inside), "long": share(inside, short, False)}
    alarms = [(text, hit) for text in others if (hit := find_overlap(index, text)) is not None]
    found["others"], found["false_alarms"] = len(others), len(alarms)
    found["alarms"] = [
        {"text": text[:200], "passage": hit.passage, "item": questions[hit.item][:200]} for text, hit in alarms[:10]
    ]
    return found


def share(hits: list[bool], short: list[bool], wanted: bool) -> float | None:
    chosen = [hit for hit, is_short in zip(hits, short, strict=True) if is_short == wanted]
    return sum(chosen) / len(chosen) if chosen else None


def copies(texts: list[str], rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"texts": len(texts), "edits": {}}
    for name, edit in {**LIGHT, **HEAVY}.items():
        every = signatures(
            [runs_to_compare(words_of(split_folded(text))) for text in [*texts, *(edit(text, rng) for text in texts)]]
        )
        bands = bands_of(every)
        later, earlier = near_pairs(lambda number, bands=bands: np.ascontiguousarray(bands[:, number]), marks_of(every), 0.8)
        pairs = set(zip(later.tolist(), earlier.tolist(), strict=True))
        hits = sum((place + len(texts), place) in pairs for place in range(len(texts)))
        found["edits"][name] = {
            "found": hits / len(texts),
            "other_pairs": sum(one % len(texts) != two % len(texts) for one, two in pairs),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+")
    parser.add_argument("--others", nargs="*", default=[])
    parser.add_argument("--traces", default="")
    arguments = parser.parse_args()
    keys = ("question", "problem", "prompt")
    others = [text for path in arguments.others for text in read(path, keys)]
    result: dict[str, Any] = {
        "overlap": {Path(path).stem: overlaps(read(path, keys), others, random.Random(1)) for path in arguments.questions}
    }
    if arguments.traces:
        result["copies"] = copies(list(dict.fromkeys(read(arguments.traces, ("completion",)))), random.Random(1))
    save("selection_recall", result)
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

"""How exact the language reward is: texts of one language, and texts mixed from two with a known share.

    python benchmarks/language_share.py articles.jsonl --mixed code_mixed.jsonl

`articles.jsonl` has `language` (a code, region and script ignored) and `text`. For every ordered pair of languages, sentences
of both are shuffled together; the true share is counted on the sentences before, in two ways: with the reward's own words, and
with white space (a Han character, a kana and each few letters of scripts without spaces being one). `--mixed` has `target`,
`text`, `expected_min` and `expected_max`; the error is the distance to that interval. Prints one JSON object."""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from r1pipe.rewards.language import base_language, dominant_language, language_share
from r1pipe.rewards.words import HAN_AND_KANA, LETTERS_PER_WORD, script_of, split_words

SENTENCE = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；।۔።])|\n+")


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def own_count(text: str) -> int:
    return sum(word.units for word in split_words(text))


def plain_count(text: str) -> int:
    """Words by white space, with no use of the reward's code but its table of scripts."""
    characters = len(re.findall(f"[{HAN_AND_KANA}]", text))
    total = 0.0
    for token in re.sub(f"[{HAN_AND_KANA}]", " ", text).split():
        letters = [script_of(character) for character in token if script_of(character)]
        if letters:
            total += len(letters) / LETTERS_PER_WORD[letters[0]] if letters[0] in LETTERS_PER_WORD else 1
    return characters + round(total)


def mix(pair: tuple[str, str], sentences: dict[str, list[str]], draw: random.Random) -> dict[str, float]:
    """One mixed text: its true shares and the reward's."""
    chosen = [(language, text) for language in pair for text in draw.sample(sentences[language], draw.randint(1, 5))]
    draw.shuffle(chosen)
    inside, total = language_share(" ".join(text for _, text in chosen), pair[0])
    shares = {"found": inside / max(1, total)}
    for name, count in (("own", own_count), ("plain", plain_count)):
        counts = [(language, count(text)) for language, text in chosen]
        shares[name] = sum(size for language, size in counts if language == pair[0]) / max(1, sum(size for _, size in counts))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("articles")
    parser.add_argument("--mixed", default="")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = [(base_language(row["language"]), row["text"]) for row in read(arguments.articles)]
    long = [(language, text) for language, text in rows if len(text) >= 100]
    started = time.process_time()
    mistakes = Counter(
        (language, dominant_language(text)[0]) for language, text in long if dominant_language(text)[0] != language
    )
    report: dict[str, Any] = {
        "articles": len(long),
        "dominant_right": 1 - sum(mistakes.values()) / len(long),
        "mistakes": {f"{language} as {other}": count for (language, other), count in mistakes.most_common(10)},
        "pure_error": mean(1 - inside / total for inside, total in (language_share(text, language) for language, text in rows)),
    }
    sentences: dict[str, list[str]] = defaultdict(list)
    for language, text in rows:
        sentences[language] += [part.strip() for part in SENTENCE.split(text) if part and len(part.strip()) >= 12]
    sentences = {language: texts for language, texts in sentences.items() if len(texts) >= 5}
    draw = random.Random(arguments.seed)
    pairs = [(one, other) for one in sentences for other in sentences if one != other]
    mixed = {pair: mix(pair, sentences, draw) for pair in pairs}
    for name in ("own", "plain"):
        errors = {pair: abs(shares["found"] - shares[name]) for pair, shares in mixed.items()}
        worst = sorted(errors, key=errors.__getitem__, reverse=True)[:5]
        report[f"mixed_error_{name}"] = mean(errors.values())
        report[f"worst_{name}"] = {f"{one} with {other}": round(errors[one, other], 3) for one, other in worst}
    report["pairs"] = len(pairs)
    if arguments.mixed:
        distances = []
        for row in read(arguments.mixed):
            inside, total = language_share(row["text"], row["target"])
            if row["expected_min"] is not None and total:
                distances.append(max(0.0, row["expected_min"] - inside / total, inside / total - row["expected_max"]))
        report["given_mixed_texts"], report["given_mixed_error"] = len(distances), mean(distances)
    report["processor_seconds"] = time.process_time() - started
    print(json.dumps(report, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()

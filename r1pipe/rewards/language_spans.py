"""Which language each word of a text is in, for languages that share a script.

A single word says little ("de" is French, Spanish, Portuguese and Dutch), so words are judged together. Each word has a score
in each language from py3langid (a naive Bayes model over byte n-grams, 4.5 MB, in its wheel, no download), and the labels are
the best path through the words when changing the language costs something: little between sentences, more inside one (Viterbi).
Where no stretch of words favours another language by more than one change costs, the best path is the plain one and is not
searched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from r1pipe.rewards.words import words_in

CHANGE_BETWEEN_SENTENCES = 4.0
CHANGE_INSIDE_SENTENCE = 8.0
"""Costs of changing the language, in nats of the model's scores."""
RARE_COST = 8.0
"""Added for languages that a text is seldom found to slip into: a strange name looks like Breton before it looks like English."""
WORD_LIMIT = 6.0
"""The most that one word can say against a language: less than a change inside a sentence costs, so one name never makes a
change."""

SCRIPT_LANGUAGES: dict[str, frozenset[str]] = {
    "Cyrillic": words_in("be bg kk ky mk mn ru sr tg tt uk uz ba"),
    "Arabic": words_in("ar fa ur ps ug ku sdh"),
    "Devanagari": words_in("hi mr ne sa gom"),
    "Bengali": words_in("bn as"),
    "Hebrew": words_in("he"),
    "Greek": words_in("el"),
    "Armenian": words_in("hy"),
    "Georgian": words_in("ka"),
    "Hangul": words_in("ko"),
    "Thai": words_in("th"),
    "Lao": words_in("lo"),
    "Khmer": words_in("km"),
    "Burmese": words_in("my"),
    "Tibetan": words_in("bo"),
    "Ethiopic": words_in("am"),
    "Gurmukhi": words_in("pa"),
    "Gujarati": words_in("gu"),
    "Oriya": words_in("or"),
    "Tamil": words_in("ta"),
    "Telugu": words_in("te"),
    "Kannada": words_in("kn"),
    "Malayalam": words_in("ml"),
    "Sinhala": words_in("si"),
    "Han": words_in("zh ja"),
    "Kana": words_in("ja"),
    "Latin": words_in(
        "af az br bs ca cs cy da de en eo es et eu fi fr fy ga gd gl ha hr ht hu id ig is it jv ku la lb lg ln lt lv mg"
        " ms mt nl no oc om pl pt qu ro rw sk sl sn so sq sr st sv sw tk tl tr uz vi vo wa xh yo zu"
    ),
}
"""The languages that can be told apart in each script, and so every language that the reward knows. ISO 639-1 where there is
one."""
SIBLINGS: tuple[frozenset[str], ...] = (frozenset({"id", "ms"}), frozenset({"bs", "hr", "sr"}))
"""Languages whose words are mostly the same: each counts as the other in a share; `dominant` still tells them apart."""
_ALIASES = {"nn": "no", "uzs": "uz", "sdh": "ku", "yue": "zh", "wuu": "zh"}
_MARKERS: dict[str, frozenset[str]] = {
    "id": words_in(
        "bahwa karena berbeda uang bisa manapun apapun siapapun kantor rahasia resmi sidang manusiawi pengadilan pidana"
        " nasional internasional pernyataan hukum maupun tapi mobil"
    ),
    "ms": words_in(
        "bahawa kerana berbeza wang sahaja hendaklah sesiapa sebarang ialah iaitu pejabat mesyuarat perlembagaan"
        " mahkamah jenayah antarabangsa kerajaan perisytiharan tiada kereta mana-mana maruah"
    ),
}
"""Words that are written in only one of two siblings; where neither has any, Indonesian has five times the speakers."""
_RARE = words_in(
    "af an as az ba br bs co cy dz eo eu fo fy ga gd gl gom ha ht ig is jv ku la lb lg ln lt lv mg mt oc om ps qu rw sa"
    " se sn so sq st tg tk tt ug vo wa xh yi yo zu"
)
_CACHED_WORDS = 40_000
_PLAIN = CHANGE_BETWEEN_SENTENCES - 0.5
"""Below a change's cost by more than rounding can amount to over a long text."""
_NO_FEATURES = -1e30
_REPEATS_WITHIN, _REPEAT_WEIGHT = 60, 0.2


def siblings(language: str) -> frozenset[str]:
    """The language and those that cannot be told from it word by word."""
    return next((group for group in SIBLINGS if language in group), frozenset({language}))


class _Words:
    """Scores of words, kept: one row of the table a word, one column a language. The only user of the model's package."""

    def __init__(self) -> None:
        import numpy as np
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self.identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE)
        names = [_ALIASES.get(name, name) for name in self.identifier.labels]
        known = frozenset().union(*SCRIPT_LANGUAGES.values())
        self.languages = sorted(known.intersection(names))
        self.column = {name: index for index, name in enumerate(self.languages)}
        self.columns = {
            script: np.array([self.column[name] for name in sorted(languages) if name in self.column], dtype=np.intp)
            for script, languages in SCRIPT_LANGUAGES.items()
        }
        self.names = {script: [self.languages[column] for column in columns] for script, columns in self.columns.items()}
        self.prior = dict(zip(self.identifier.nb_classes, self.identifier.nb_pc.tolist(), strict=True))
        self.gains: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        self.rows: dict[str, int] = {}
        self.table: Any = np.zeros((1024, len(self.languages)), dtype=np.float32)

    def _score(self, word: str) -> Any:
        """One row: log-likelihoods of a word, the best at 0; all 0 for a word that the model knows nothing of."""
        import numpy as np

        values = np.full(len(self.languages), -np.inf, dtype=np.float32)
        for name, score in self.identifier.rank(f" {word} "):
            column = self.column.get(_ALIASES.get(name, name))
            if column is not None:
                values[column] = max(values[column], score - self.prior[name])
        best = values.max()
        return values - best if best > _NO_FEATURES else np.zeros_like(values)

    def scores(self, words: Sequence[str]) -> Any:
        """(words, languages) in nats, each row with its best at 0."""
        import numpy as np

        if len(self.rows) > _CACHED_WORDS:
            self.rows.clear()
        rows = []
        for word in words:
            row = self.rows.get(word)
            if row is None:
                row = self.rows[word] = len(self.rows)
                if row >= len(self.table):
                    self.table = np.concatenate([self.table, np.zeros_like(self.table)])
                self.table[row] = self._score(word.lower())
            rows.append(row)
        return self.table[rows]

    def plain(self, words: Sequence[str], script: str, favourite: str) -> bool:
        """Whether all words are in the favourite language beyond doubt: no stretch of them has, even if each word counted for the
        rival that it speaks for most, a change's cost over it. Most short texts are; this is faster than to label them."""
        gains = self.gains.setdefault((script, favourite), {})
        if len(gains) > _CACHED_WORDS:
            gains.clear()
        common = rare = 0.0
        for word in words:
            gain = gains.get(word)
            if gain is None:
                gain = gains[word] = self._gain(word, script, favourite)
            common = max(0.0, common + gain[0])
            rare = max(0.0, rare + gain[1])
            if common > _PLAIN or rare > _PLAIN + RARE_COST:
                return False
        return True

    def _gain(self, word: str, script: str, favourite: str) -> tuple[float, float]:
        """What a word says at most for a common and for a rare language, over the favourite."""
        names = self.names[script]
        home = names.index(favourite)
        over = _over_home(self.scores([word])[:, self.columns[script]], names, home)[0].tolist()
        common = [value for index, value in enumerate(over) if index != home and names[index] not in _RARE]
        rare = [value for index, value in enumerate(over) if index != home and names[index] in _RARE]
        return max(common, default=0.0), max(rare, default=0.0)


@lru_cache(maxsize=1)
def _words() -> _Words:
    return _Words()


def label_words(words: Sequence[str], sentences: Sequence[int], script: str, favourite: str = "") -> list[str]:
    """The language of each word (ISO 639-1), all of one script.

    Args:
        words: the words in order.
        sentences: the sentence number of each.
        script: their script; only its languages are considered.
        favourite: the language that the text is supposed to be in; the best single language for the whole text when empty.
    """
    import numpy as np

    languages = SCRIPT_LANGUAGES[script]
    if not words:
        return []
    if len(languages) == 1:
        return [next(iter(languages))] * len(words)
    model = _words()
    columns = model.columns[script]
    names = model.names[script]
    if favourite in names and model.plain(words, script, favourite):
        return [favourite] * len(words)
    scores = model.scores(words)[:, columns]
    home = names.index(favourite) if favourite in names else int(scores.sum(axis=0).argmax())
    scores = _over_home(scores, names, home)
    costs = np.array([RARE_COST if name in _RARE else 0.0 for name in names], dtype=np.float32) + CHANGE_BETWEEN_SENTENCES
    rivals = np.flatnonzero(_stretches(scores).max(axis=0) > costs)
    labels = [names[home]] * len(words)
    if not len(rivals):
        return labels
    advantage = scores[:, rivals]
    through = _stretches(advantage) + _stretches(advantage[::-1])[::-1] - advantage
    doubtful = np.flatnonzero((through > costs[rivals]).any(axis=1))
    advantage[doubtful] *= np.where(
        advantage[doubtful] > 0.0, _freshness([words[int(index)] for index in doubtful])[:, None], 1.0
    )
    extra = [float(costs[rival]) - CHANGE_BETWEEN_SENTENCES for rival in rivals]
    for part in np.split(doubtful, np.flatnonzero(np.diff(doubtful) > 1) + 1):
        start, end = int(part[0]), int(part[-1]) + 1
        path = _best_path(advantage[start:end].tolist(), extra, sentences, start)
        for index, state in zip(range(start, end), path, strict=True):
            if state:
                labels[index] = names[int(rivals[state - 1])]
    return labels


def _over_home(scores: Any, names: Sequence[str], home: int) -> Any:
    """(words, languages): what each word says for a language over the home language, whose siblings count as itself."""
    import numpy as np

    for sibling in siblings(names[home]) - {names[home]}:
        if sibling in names:
            other = names.index(sibling)
            scores[:, home] = np.maximum(scores[:, home], scores[:, other])
            scores[:, other] = -np.inf
    np.maximum(scores, -WORD_LIMIT, out=scores)
    scores -= scores[:, home : home + 1].copy()
    return scores


def _freshness(words: Sequence[str]) -> Any:
    """How much each word says for another language: little when it stood among the last few ("Door 1, Door 2" is not Dutch)."""
    import numpy as np

    seen: dict[str, int] = {}
    weights = np.ones(len(words), dtype=np.float32)
    for index, word in enumerate(words):
        if index - seen.get(word, -_REPEATS_WITHIN) < _REPEATS_WITHIN:
            weights[index] = _REPEAT_WEIGHT
        seen[word] = index
    return weights


def _stretches(advantage: Any) -> Any:
    """(words, languages): the most that a stretch of words ending at each word has over the home language."""
    import numpy as np

    sums = np.cumsum(advantage, axis=0)
    before = np.zeros_like(sums)
    before[1:] = sums[:-1]
    return sums - np.minimum(np.minimum.accumulate(before, axis=0), 0.0)


def _best_path(advantage: list[list[float]], extra: list[float], sentences: Sequence[int], start: int) -> list[int]:
    """Viterbi over a stretch of words that begins and ends at home: state 0 is home, state i + 1 is rival i."""
    last = len(advantage) - 1

    def cost(index: int) -> float:
        """Of changing at the word at this place of the text."""
        if index == 0 or index >= len(sentences) or sentences[index] != sentences[index - 1]:
            return CHANGE_BETWEEN_SENTENCES
        return CHANGE_INSIDE_SENTENCE

    first = cost(start)
    totals = [0.0, *(score - first - more for score, more in zip(advantage[0], extra, strict=True))]
    came_from: list[list[int]] = []
    for place in range(1, last + 1):
        price = cost(start + place)
        best = max(range(len(totals)), key=totals.__getitem__)
        changes = [totals[best] - price, *(totals[best] - price - more for more in extra)]
        came_from.append([state if total >= changes[state] else best for state, total in enumerate(totals)])
        scores = (0.0, *advantage[place])
        totals = [max(total, change) + score for total, change, score in zip(totals, changes, scores, strict=True)]
    leaving = cost(start + last + 1) if start + last + 1 < len(sentences) else 0.0
    totals = [totals[0], *(total - leaving for total in totals[1:])]
    path = [max(range(len(totals)), key=totals.__getitem__)]
    for sources in reversed(came_from):
        path.append(sources[path[-1]])
    return path[::-1]


def tell_siblings_apart(words: Sequence[str], language: str) -> str:
    """Which of a language and its siblings the words are: words that only one of them has, or the model's word."""
    group = sorted(siblings(language))
    if len(group) == 1:
        return language
    lowered = [word.lower() for word in words]
    marked = {name: sum(word in _MARKERS.get(name, ()) for word in lowered) for name in group}
    if any(name in _MARKERS for name in group):
        return max(group, key=lambda name: marked[name])
    ranked = dict(_words().identifier.rank(" ".join(words)))
    return max(group, key=lambda name: ranked[name])

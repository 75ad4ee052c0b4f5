"""Where the final answer of a summary stands.

In this order; the first rule that finds something decides, and docs/verifier.md tells the rules to users:

1. the last `<answer>` block, if there is one, is all that is read;
2. the last balanced `\\boxed{…}`;
3. what follows the last `####`;
4. what follows the last "the answer is" or "Answer:" (in some twelve languages);
5. the whole text, when it is one short line;
6. the last formula, bold phrase or number, whichever stands last, unless the text is program code.

Every scan is linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from r1pipe.data.chat import answer_block
from r1pipe.rewards.maths.tokens import FUNCTIONS

MAX_SUMMARY_CHARS = 200_000
"""Only this much of the end of a summary is read."""
PROSE_CHARS = 20_000
"""Without a box or tag, only this much of the end is searched."""
SHORT_LINE_CHARS = 160
MAX_RUN = 40
"""Most boxes that are read as one list."""

_BOX = re.compile(r"(?:\\+(?:boxed|fbox|framebox)|\\+begin\{?boxed\}?|\\beginboxed)\s*(?=[{\w\\(\[-])")
_BARE_BOX = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]\b")
_BRACE = re.compile(r"\\[\\{}]|[{}]")
_SPECIAL = re.compile(r"<[|｜][^|｜<>\n]{1,40}[|｜]>")
_HEDGE = re.compile(
    r"(?:\b(?:not|cannot|never|neither|nor|(?:less|fewer|greater|more|larger|smaller|other) than|at least|at most|above|below"
    r"|nicht|kein|keine|pas|не)\b|n't\b|n’t\b|≠|\\neq?\b|!=|不是|不为|不等于|大于|小于|不超过|至少|至多)"
    r"(?:\s+(?!(?:is|are|was|but|that|which|so|we|get|gives?|equals?)\b)[^\W\d]+){0,2}[\s$*(\\]*$"
    r"|\b(?:either|between|one of)\b(?:(?!\b(?:is|are|was|equals?)\b)[^.;:!?=\n])*$",
    re.IGNORECASE,
)
"""What, standing before a number, says that the number is not the answer: "not 5", "either 5 or 6", "at most 5"."""
_OR = re.compile(r"[\s$*]*,?[\s$*]*(?:\bor\b|或(?:者)?)[\s$*]*")
# Upper and lower case are spelt out, since a set of first letters can be searched for and an ignored case cannot.
_ENGLISH = re.compile(
    r"(?:[Aa]nswers?|ANSWER|[Ff]inal [Rr]esult|[Aa]ns|[Ss]olution)\b\W{0,4}\s*(?:is|are|was|would be|will be|should be"
    r"|must be|comes to|equals"
    r"|=|:|⇒|→)(?:\s*(?:simply|just|then|therefore|thus|given by|as follows|exactly|approximately|about)\b)*"
    r"|(?:[Ff]inal|FINAL)\s+(?:[Aa]nswer|ANSWER)\b|[Aa]nswer\b(?=\s*(?:\$|\\\(|\\\[|-?\d))"
)
_ENGLISH_PARTS = ("nswer", "NSWER", "esult", "olution", "Ans", "ans:", "ans ")
_LINE_A = re.compile(r"\n[ \t]*A[ \t]*[:：]")
_OTHER_LANGUAGES = re.compile(
    r"答案(?:应该|应当|就|应)?(?:是|为|：|:|选择|选|即)|结果(?:是|为|：|:)|(?:应|因此|所以|故)选(?:择)?(?:项)?\s*[:：]?\s*(?=[（(]?[A-K])|\n\s*答\s*[:：]"
    r"|(?<![不未])选(?:择)?\s*[:：]?\s*(?=[（(]?[A-K])|(?:答え|解答|回答)(?:は|：|:|=)"
    r"|[Rr]espuesta(?:\s+(?:final|correcta))?(?:\s+(?:es|será))?\s*[:=]?|[Rr]éponse(?:\s+finale)?\s*(?:est|:|=)|[Rr]ésultat\s*(?:est|:)"
    r"|[Aa]ntwort\s*(?:ist|lautet|:)|[Ee]rgebnis\s*(?:ist|lautet|:)|[Ll]ösung\s*(?:ist|lautet|:)|[Оо]твет(?:\s*(?:будет|равен|[:—–=-]))"
    r"|คำตอบ(?:สุดท้าย)?\s*(?:คือ|:|=)?|ตอบ\s*:?|[Jj]ibu(?:\s+la\s+mwisho|\s+sahihi)?\s*(?:ni|:|=)"
    r"|উত্তর(?:টি)?\s*(?:হলো|হল|হচ্ছে|হবে|:|ঃ|=)?|సమాధానం\s*[:=]?|జవాబు\s*[:=]?"
)
_FORMULA = re.compile(r"\$\$(.{1,500}?)\$\$|\$([^$\n]{1,500}?)\$|\\\[(.{1,500}?)\\\]|\\\((.{1,500}?)\\\)", re.DOTALL)
_BEFORE_DIGITS = re.compile(r"[^\d$\\]*(?=\d|\$\s?\d)")
_BOLD = re.compile(r"(?:\*\*|__)(?=\S)([^*\n]{1,200}?)(?<=\S)(?:\*\*|__)")
_EMPHASIS = re.compile(r"(?<![\w)])(\*\*|__)(?=\S)(.{1,300}?)(?<=\S)\1(?![\w(])")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\\])[-+−]?(?:[$€£¥₹]\s?)?(?:\d+|\.\d+)(?:[,，.']\d+|[ \u00a0\u202f]\d{3}(?!\d))*(?:\s?/\s?\d+)?"
    r"(?:\s*\^\s*\d+)?"
    r"(?:\s?(?:%|°|[€£¥₹$]|(?:[^\W\d_]{1,15}[²³]?)(?:\s?/\s?[a-z]{1,4}[²³]?)?))?"
)
_CODE = re.compile(
    r"\b(?:lambda|import|eval|exec|open|print|globals|locals|getattr|__\w+__)\b\s*[(\[:]?"
    r"|\w\(['\")]|\)\.\w|['\"]\]|\bdef \w|;\s*\w+\s*="
)
_SENTENCE_END = re.compile(r"(?<=[\w$)}\]\"”%°*])[.!?](?=\s+(?:[A-Z\"“(*]|$)|$)|[。！？]|\n")
_IS = re.compile(r"(?:\b(?:is|are|was|equals?|be|es|est|ist|beträgt|ni|равно|равна)\b|=|:|：|是|为|等于|は|คือ)\s*")
_CONTRAST = re.compile(r"(?<=[\w)}\]$%°])\s*[,(;]\s*(?:and\s+)?(?:not|rather than|instead of)\b.*", re.DOTALL)
_ASIDE = re.compile(r"\s*\b(?:I hope it is correct|which is|because|since|as required|so that|where)\b.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A final answer.

    Attributes:
        text: what stands there; empty when the place is there and nothing stands in it.
        rule: "tag", "box", "hash", "phrase", "line", "formula", "bold", "number", or "none".
    """

    text: str
    rule: str


def final_answer(summary: str) -> Found:
    """The final answer of a summary (see the module docstring); `Found("", "none")` when there is none."""
    text = summary[-MAX_SUMMARY_CHARS:]
    if "<|" in text or "<｜" in text:  # what stands after the end of the turn is not the answer; a mark before it is nothing
        text = next((piece for piece in _SPECIAL.split(text) if piece.strip()), "")
    block = answer_block(text)
    tagged = block is not None
    if block is not None:
        text = block
    box = last_box(text)
    if box is not None:
        return Found(box, "box")
    if tagged and len(text) <= SHORT_LINE_CHARS and "\n" not in text.strip():
        return Found(unmarked(text), "tag")
    if "####" in text:
        return Found(unmarked(text.rpartition("####")[2].strip().split("\n")[0]), "hash")
    return _in_prose(text)


def last_box(text: str) -> str | None:
    """Content of the last balanced box; None without one. `\\boxed5` counts; an escaped brace is not a brace."""
    if "box" not in text:
        return None
    starts = [match.end() for match in _BOX.finditer(text)]
    for start in starts[:-4:-1]:  # nearly always the last one is balanced
        if text[start] != "{":
            bare = _BARE_BOX.match(text, start)
            if bare:
                return bare.group(0)
        elif (close := _closing(text, start)) > 0:
            return text[start + 1 : close].strip()
    return _last_balanced(text, set(starts[:-3])) if len(starts) > 3 else None


def _last_balanced(text: str, starts: set[int]) -> str | None:
    """The same by one pass over all braces, for texts with many boxes left open."""
    stack: list[int] = []
    last: tuple[int, int] | None = None
    for match in _BRACE.finditer(text):
        token = match.group(0)
        if token == "{":
            stack.append(match.start())
        elif token == "}" and stack:
            opened = stack.pop()
            if opened in starts and (last is None or opened > last[0]):
                last = (opened, match.start())
    return text[last[0] + 1 : last[1]].strip() if last else None


def _closing(text: str, start: int, within: int = MAX_SUMMARY_CHARS) -> int:
    """Where the brace at `start` closes, looking no further than `within` characters; -1 when it does not."""
    level = 0
    for match in _BRACE.finditer(text, start, start + within):
        level += {"{": 1, "}": -1}.get(match.group(0), 0)
        if level == 0:
            return match.start()
    return -1


def box_run(text: str) -> str:
    """The last boxes as one list, when nothing but separators stands between them; empty when there are fewer than two.

    `\\boxed{1}, \\boxed{2}` and `\\boxed{1} and \\boxed{2}` say "1, 2"; any other word between them ends the run.
    """
    pieces: list[tuple[int, int, str]] = []
    for start, end in [match.span() for match in _BOX.finditer(text)][-MAX_RUN:]:
        close = _closing(text, end, 2000) if text[end] == "{" else -1
        if close > 0:
            pieces.append((start, close + 1, text[end + 1 : close]))
    run = pieces[-1:]
    for earlier, later in reversed(list(pairwise(pieces))):
        between = text[earlier[1] : later[0]]
        if len(between) > 60 or re.sub(
            r"\\quad|\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b|和|或|\\[()\[\],;! ]|[\s$,;、，；.]", "", between
        ):
            break
        run.insert(0, earlier)
    return ", ".join(piece[2] for piece in run) if len(run) > 1 else ""


def _in_prose(text: str) -> Found:
    """The answer of a text without tags and boxes."""
    tail = "\n" + text[-PROSE_CHARS:]
    announced = [match.end() for match in _LINE_A.finditer(tail)]
    if any(part in tail for part in _ENGLISH_PARTS):
        announced = sorted((*announced, *(match.end() for match in _ENGLISH.finditer(tail))))
    if not tail.isascii() or "ibu" in tail or "espuesta" in tail or "ntwort" in tail or "rgebnis" in tail:
        announced = sorted((*announced, *(match.end() for match in _OTHER_LANGUAGES.finditer(tail))))
    for end in reversed(announced):
        rest = tail[end:].lstrip(" \t*_#:：=—–>\n\r")
        sentence = _sentence(rest)
        if sentence and rest[len(sentence) :].lstrip("*_ ")[:2] in ("? ", "?\n"):
            continue  # "The answer is 5? No, ..." asks
        if sentence:
            return Found(_core(sentence), "phrase")
    stripped = text.strip()
    if not stripped:
        return Found("", "none")
    if len(stripped) <= SHORT_LINE_CHARS and "\n\n" not in stripped and _is_bare(stripped):
        return Found(unmarked(stripped), "line")
    if _CODE.search(stripped[-PROSE_CHARS:]):
        return Found("", "none")
    return _last_candidate(stripped)


def _sentence(rest: str) -> str:
    """The first sentence, formulas kept whole."""
    formula = _FORMULA.match(rest)
    offset = formula.end() if formula else 0
    end = _SENTENCE_END.search(rest, offset, offset + 600)
    return rest[: end.start() if end else offset + 600].strip(" \t*_")


def _core(sentence: str) -> str:
    """The answer in the sentence that announces it: all of it when it is short and bare, else its formula or number."""
    sentence = _CONTRAST.sub("", unmarked(_ASIDE.sub("", sentence)))
    if _is_bare(sentence):
        return sentence
    beginning = _FORMULA.match(sentence) or _NUMBER.match(sentence)
    if beginning:
        return sentence[: beginning.end()]
    after = _IS.split(sentence)[-1].strip()
    if after and after != sentence and _is_bare(after):
        return after
    found = _last_candidate(sentence).text
    return found or sentence


def _is_bare(text: str) -> bool:
    """Whether a text is an answer by itself rather than a sentence around one: at most two words that are not maths."""
    leading = _BEFORE_DIGITS.match(text)
    if leading and any(
        word not in FUNCTIONS and word != "frac" for word in re.findall(r"[^\W\d_]{3,}|[^\W\d_a-zA-Z]{2,}", leading.group(0))
    ):
        return False  # words, then a number: a sentence
    without = _FORMULA.sub(" ", text)
    words = re.findall(r"[^\W\d_]{2,}", re.sub(r"\\[A-Za-z]+", " ", without))
    if not words:
        return True
    if re.search(r"\d", text) is None and not _FORMULA.search(text):
        return len(words) <= 8
    joining = {"and", "or", "percent", "degrees", "per", "square", "cubic"}
    return len([word for word in words if word.lower() not in joining]) <= 2 and not re.search(
        r"\b(?:is|are|thus|so|we|the|of)\b", without, re.IGNORECASE
    )


def final_words(summary: str) -> str:
    """The final answer of a text whose answer must be words: the last bold phrase, else what its only sentence says "is"."""
    text = summary[-PROSE_CHARS:].strip()
    for match in reversed(list(_BOLD.finditer(text))):
        content = match.group(1).strip()
        heading = content.endswith((":", "：")) or text[match.end() : match.end() + 1] in (":", "：")
        if not heading and len(content) <= 80:
            return content
    sentence = text.rstrip(".!。 ")
    if "\n" in sentence or _SENTENCE_END.search(sentence):
        return ""
    return _IS.split(sentence)[-1].strip()


def _last_candidate(text: str) -> Found:
    """The last formula, bold phrase with a digit, or number."""
    text = text[-PROSE_CHARS:]
    candidates: list[tuple[int, int, Found]] = []
    covered: list[tuple[int, int]] = []
    for match in _FORMULA.finditer(text):
        covered.append(match.span())
        content = next(group for group in match.groups() if group is not None)
        if re.search(r"[\w∞∅]", content):
            candidates.append((match.start(), match.end(), Found(content.strip(), "formula")))
    for match in _BOLD.finditer(text):
        content = match.group(1).strip()
        heading = (
            content.endswith((":", "："))
            or text[match.end() : match.end() + 1] in (":", "：")
            or re.match(r"(?:step|case|part)\b|\d+\.", content, re.I)
        )
        if re.search(r"\d", content) and not heading:
            candidates.append(
                (match.start(), match.end() + 1, Found(_core(content) if not _is_bare(content) else content, "bold"))
            )
    position = 0
    for match in _NUMBER.finditer(text):
        while position < len(covered) and covered[position][1] <= match.start():
            position += 1
        if position < len(covered) and covered[position][0] <= match.start():
            continue
        candidates.append((match.start(), match.end(), Found(match.group(0).strip(), "number")))
    return _chosen(text, candidates)


def _chosen(text: str, candidates: list[tuple[int, int, Found]]) -> Found:
    """The last candidate; together with what "or" joins to it; nothing when the words before it say that it is not the answer."""
    if not candidates:
        return Found("", "none")
    candidates.sort(key=lambda candidate: candidate[1])
    start, _, last = candidates[-1]
    for earlier_start, earlier_end, earlier in reversed(candidates[:-1]):
        if earlier_end > start or not _OR.fullmatch(text[earlier_end:start]):
            break
        start, last = earlier_start, Found(f"{earlier.text} or {last.text}", last.rule)
    before = text[max(0, start - 80) : start]
    return Found("", "none") if _HEDGE.search(before) else last


def unmarked(text: str) -> str:
    """Without Markdown emphasis, list marks and quotes around it."""
    text = _EMPHASIS.sub(r"\2", text)
    return re.sub(r"^(?:[#>*\s]|[-•]\s)+|`", "", text).strip(' \t\n"“”*')

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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from r1pipe.data.chat import answer_block

MAX_SUMMARY_CHARS = 200_000
"""Only this much of the end of a summary is read."""
SHORT_LINE_CHARS = 160

_BOX = re.compile(r"(?:\\+(?:boxed|fbox|framebox)|\\+begin\{?boxed\}?|\\beginboxed)\s*(?=[{\w\\(\[-])")
_SPECIAL = re.compile(r"<\|[^|<>\n]{1,40}\|>")
_PHRASE = re.compile(
    r"(?:final\s+answer|correct\s+answer|answer|answers|final\s+result|ans|solution)\W{0,4}\s*(?:is|are|was|would\s+be|will\s+be|should\s+be"
    r"|must\s+be|comes\s+to|equals|=|:|⇒|→)(?:\s*(?:simply|just|then|therefore|thus|given\s+by|as\s+follows|exactly|approximately|about))*"
    r"|\bfinal\s+answer\b|^\s*A\s*[:：]|\banswer\b(?=\s*(?:\$|\\\(|\\\[|-?\d))"
    r"|(?:最终|正确|最后)?(?:的)?(?:答案|结果|解答)(?:应该|应当|就|应)?(?:是|为|：|:|选择|选|即)|故?(?:应|因此|所以)?选(?:择)?(?:项)?\s*[:：]?\s*(?=[（(]?[A-K])|^\s*答\s*[:：]"
    r"|(?:最終的な|最終)?(?:答え|解答|回答)(?:は|：|:|=)"
    r"|respuesta(?:\s+(?:final|correcta))?(?:\s+(?:es|correcta\s+es|sería|será))?\s*[:=]?|réponse(?:\s+finale)?\s*(?:est|:|=)|résultat\s*(?:est|:)"
    r"|(?:endgültige\s+)?antwort\s*(?:ist|lautet|:)|ergebnis\s*(?:ist|lautet|:)|lösung\s*(?:ist|lautet|:)"
    r"|(?:окончательный\s+)?ответ(?:\s*(?:будет|равен|[:—–=-]))|คำตอบ(?:สุดท้าย)?\s*(?:คือ|:|=)?|ตอบ\s*:?"
    r"|jibu(?:\s+la\s+mwisho|\s+sahihi)?\s*(?:ni|:|=)|(?:চূড়ান্ত\s+)?উত্তর(?:টি)?\s*(?:হল|হলো|হচ্ছে|হবে|:|ঃ|=)?|సమాధానం\s*[:=]?|జవాబు\s*[:=]?",
    re.IGNORECASE | re.MULTILINE,
)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_BOLD = re.compile(r"(?:\*\*|__)(?=\S)([^*\n]{1,200}?)(?<=\S)(?:\*\*|__)")
_NUMBER = re.compile(
    r"(?<![\w.\\])[-+−]?(?:[$€£¥₹]\s?)?\d+(?:[,.'  \u202f]\d+)*(?:\s?/\s?\d+)?(?:\s*\^\s*\d+)?"
    r"(?:\s?(?:%|°|[€£¥₹$]|(?:[^\W\d_]{1,15}[²³]?)(?:\s?/\s?[a-z]{1,4}[²³]?)?))?"
)
_CODE = re.compile(r"\b(?:lambda|import|eval|exec|open|print|globals|locals|getattr|__\w+__)\b\s*[(\[:]?|\w\(['\")]|\)\.\w|['\"]\]|\bdef \w|;\s*\w+\s*=")
_SENTENCE_END = re.compile(r"(?<=[\w$)}\]\"”%°*])[.!?](?=\s+(?:[A-Z\"“(*]|$)|$)|[。！？]|\n")
_IS = re.compile(r"(?:\b(?:is|are|was|equals?|be|es|est|ist|beträgt|ni|равно|равна)\b|=|:|：|是|为|等于|は|คือ)\s*")
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
    text = _SPECIAL.split(summary[-MAX_SUMMARY_CHARS:])[0] if "<|" in summary else summary[-MAX_SUMMARY_CHARS:]
    block = answer_block(text)
    tagged = block is not None
    if block is not None:
        text = block
    boxes = boxed(text)
    if boxes:
        return Found(boxes[-1].strip(), "box")
    if tagged and len(text) <= SHORT_LINE_CHARS and "\n" not in text.strip():
        return Found(unmarked(text), "tag")
    if "####" in text:
        return Found(unmarked(text.rpartition("####")[2].strip().split("\n")[0]), "hash")
    return _in_prose(text)


def boxed(text: str) -> list[str]:
    """Contents of the balanced boxes, in order of their beginnings. `\\boxed5` counts; an escaped brace is not a brace."""
    starts = {match.end(): match for match in _BOX.finditer(text)}
    if not starts:
        return []
    found: dict[int, str] = {position: match.group(0) for position, match in _bare_boxes(text, starts)}
    stack: list[int] = []
    for match in re.finditer(r"\\[\\{}]|[{}]", text):
        token = match.group(0)
        if token == "{":
            stack.append(match.start())
        elif token == "}" and stack:
            opened = stack.pop()
            if opened in starts:
                found[opened] = text[opened + 1 : match.start()]
    return [found[position] for position in sorted(found)]


def last_box(text: str) -> str | None:
    """Content of the last balanced box; None without one."""
    boxes = boxed(text)
    return boxes[-1].strip() if boxes else None


def _bare_boxes(text: str, starts: dict[int, re.Match[str]]) -> Iterator[tuple[int, re.Match[str]]]:
    for position in starts:
        if text[position] != "{":
            content = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]\b").match(text, position)
            if content:
                yield position, content


def box_run(text: str) -> str:
    """The last boxes as one list, when nothing but separators stands between them; empty when there are fewer than two.

    `\\boxed{1}, \\boxed{2}` and `\\boxed{1} and \\boxed{2}` say "1, 2"; any other word between them ends the run.
    """
    spans = [(match.start(), match.end()) for match in _BOX.finditer(text)]
    pieces: list[tuple[int, int, str]] = []
    for start, end in spans:
        if text[end : end + 1] == "{":
            close = _closing(text, end)
            if close > 0:
                pieces.append((start, close + 1, text[end + 1 : close]))
        if len(pieces) > 64:
            return ""
    run = pieces[-1:]
    for earlier, later in reversed(list(pairwise(pieces))):
        between = text[earlier[1] : later[0]]
        if len(between) > 60 or re.sub(r"\\quad|\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b|和|或|\\[()\[\],;! ]|[\s$,;、，；.]", "", between):
            break
        run.insert(0, earlier)
    return ", ".join(piece[2] for piece in run) if len(run) > 1 else ""


def _closing(text: str, start: int) -> int:
    level = 0
    for match in re.compile(r"\\[\\{}]|[{}]").finditer(text, start, start + 4000):
        level += {"{": 1, "}": -1}.get(match.group(0), 0)
        if level == 0:
            return match.start()
    return -1


def _in_prose(text: str) -> Found:
    """The answer of a text without tags and boxes."""
    for match in reversed(list(_PHRASE.finditer(text[-20_000:]))):
        rest = text[-20_000:][match.end() :].lstrip(" \t*_#:：=—–>\n\r")
        sentence = _sentence(rest)
        if sentence:
            return Found(_core(sentence), "phrase")
    stripped = text.strip()
    if len(stripped) <= SHORT_LINE_CHARS and "\n\n" not in stripped and _is_bare(stripped):
        return Found(unmarked(stripped), "line")
    if _CODE.search(stripped):
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
    sentence = unmarked(_ASIDE.sub("", sentence))
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
    if re.match(r"[^\W\d_]{3,}\s*[:：].*\d", text, re.DOTALL):
        return False
    without = _FORMULA.sub(" ", text)
    words = re.findall(r"[^\W\d_]{2,}", re.sub(r"\\[A-Za-z]+", " ", without))
    if not words:
        return True
    if re.search(r"\d", text) is None and not _FORMULA.search(text):
        return len(words) <= 8
    joining = {"and", "or", "percent", "degrees", "per", "square", "cubic"}
    return len([word for word in words if word.lower() not in joining]) <= 2 and not re.search(r"\b(?:is|are|thus|so|we|the|of)\b", without, re.IGNORECASE)


def _last_candidate(text: str) -> Found:
    """The last formula, bold phrase with a digit, or number."""
    text = text[-20_000:]
    candidates: list[tuple[int, Found]] = []
    covered: list[tuple[int, int]] = []
    for match in _FORMULA.finditer(text):
        covered.append(match.span())
        content = next(group for group in match.groups() if group is not None)
        if re.search(r"[\w∞∅]", content):
            candidates.append((match.end(), Found(content.strip(), "formula")))
    for match in _BOLD.finditer(text):
        content = match.group(1).strip()
        heading = content.endswith((":", "：")) or text[match.end() : match.end() + 1] in (":", "：") or re.match(r"(?:step|case|part)\b|\d+\.", content, re.I)
        if re.search(r"\d", content) and not heading:
            candidates.append((match.end() + 1, Found(_core(content) if not _is_bare(content) else content, "bold")))
    position = 0
    for match in _NUMBER.finditer(text):
        while position < len(covered) and covered[position][1] <= match.start():
            position += 1
        if position < len(covered) and covered[position][0] <= match.start():
            continue
        candidates.append((match.end(), Found(match.group(0).strip(), "number")))
    return max(candidates, key=lambda candidate: candidate[0])[1] if candidates else Found("", "none")


def unmarked(text: str) -> str:
    """Without Markdown emphasis, list marks and quotes around it."""
    return re.sub(r"\*\*|__|^(?:[#>*\s]|[-•]\s)+|`", "", text).strip(' \t\n"“”*')

"""Numbers in words, English and Chinese, and scales behind digits: twenty-three, two thirds, 二十三, 四分之三, 5 million, 2万亿.

Only whole numbers in words are read, at the beginning of an answer: what follows is a unit ("twenty-three apples") or the text
stays text ("two-dimensional"). Ordinals ("the third") are no numbers.
"""

from __future__ import annotations

import re
from fractions import Fraction

from r1pipe.rewards.maths.clean import GAP, TEXT_OPEN

MAX_CHARS = 160
_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_ONES = {word: value for value, word in enumerate(_SMALL)}
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4, "fifth": 5,
    "fifths": 5, "sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7, "eighth": 8, "eighths": 8, "ninth": 9, "ninths": 9,
    "tenth": 10, "tenths": 10, "hundredth": 100, "hundredths": 100,
}  # fmt: skip
_KNOWN = {*_ONES, *_TENS, *_SCALES, *_PARTS, "hundred", "dozen", "and", "a", "an", "point", "negative", "minus"}
_WORD = re.compile(r"[A-Za-z]+")
_FIRST = re.compile(
    r"\s*(?:" + "|".join((*_ONES, *_TENS, "hundred", "half", "a", "an", "negative", "minus", "thousand", "million")) + r")\b",
    re.IGNORECASE,
)
_BETWEEN = re.compile(rf", |[ {GAP}]*-?[ {GAP}]*")
_SCALED = re.compile(
    rf"(?<![\w.,])(\d[\d,]*(?:\.\d+)?(?:·\d+)*)([ {GAP}]*{TEXT_OPEN}?[ ]*)"
    r"(hundred|thousand|million|billion|trillion|dozen|halves|thirds|fourths|fifths|sixths|eighths|tenths|hundredths|squared|cubed"
    r"|factorial)\b",
    re.IGNORECASE,
)
_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "亿": 10**8}
_NUMERAL = "[零〇一二两三四五六七八九十百千万亿]"
_CHINESE = re.compile(rf"(负?)(?:({_NUMERAL}+)分之({_NUMERAL}+)|({_NUMERAL}+)(?:点([零〇一二三四五六七八九]+))?)(?![分点])")
_WORDS_WITH_NUMERALS = re.compile(r"[一二三四五六七八九十](?:角|边|棱|次(?:函数|方程)|元[一二三]次|等分|中点|定点|维|面体|象限)")


def with_digits(source: str) -> str:
    """Cleaned text with a number in words at its beginning, or a scale behind digits, written in digits; else unchanged."""
    if len(source) > MAX_CHARS:
        return source
    scaled = _SCALED.sub(_scaled, source)
    while scaled != source:  # 5 hundred thousand
        source, scaled = scaled, _SCALED.sub(_scaled, scaled)
    bare = source.lstrip(f" {GAP}{TEXT_OPEN}")
    opened = source[: len(source) - len(bare)]
    if _FIRST.match(bare):
        value, end = english(bare)
    elif bare[:1] in _DIGITS or bare[:1] in _PLACES or bare[:1] == "负":
        value, end = chinese(bare)
    else:
        return source
    return source if value is None else f"{_written(value)}{opened}{bare[end:]}".strip()


def _scaled(match: re.Match[str]) -> str:
    number, between, word = match.group(1), match.group(2), match.group(3).lower()
    if word in ("squared", "cubed", "factorial"):
        behind = {"squared": "^{2}", "cubed": "^{3}", "factorial": "!"}[word]
        return f"({number}){behind}{between}"
    size = {"hundred": 100, "dozen": 12, **_SCALES}.get(word)
    return f"{number.replace(',', '')}·{size}{between}" if size else f"(\\frac{{{number}}}{{{_PARTS[word]}}}){between}"


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{'-' if value < 0 else ''}(\\frac{{{abs(value.numerator)}}}{{{value.denominator}}})"


def english(text: str) -> tuple[Fraction | None, int]:
    """The number that a text begins with, in English words, and where it ends; None without one."""
    words: list[tuple[str, int]] = []
    position = 0
    while (match := _WORD.match(text, position)) and match.group(0).lower() in _KNOWN:
        words.append((match.group(0).lower(), match.end()))
        between = _BETWEEN.match(text, match.end())
        position = between.end() if between else match.end()
    sign = 1
    if words and words[0][0] in ("negative", "minus"):
        sign, words = -1, words[1:]
    value, used = _fraction([word for word, _ in words])
    if value is None or not used:
        return None, 0
    end = words[used - 1][1]
    if re.match(r"-?[A-Za-z]", text[end:]) or used < len(words):  # two-dimensional; two, three; five thirty
        return None, 0
    return sign * value, end


def _fraction(words: list[str]) -> tuple[Fraction | None, int]:
    """Value of words and how many of them it took: a whole number, with "and a half", "point five" or a denominator."""
    if words[:1] == ["half"]:
        return Fraction(1, 2), 1
    if len(words) > 1 and words[0] in ("a", "an"):
        words = ["one", *words[1:]]
    elif words[:1] and words[0] in ("hundred", "thousand", "million"):
        return None, 0
    whole, used = _whole(words)
    if whole is None:
        return None, 0
    rest = words[used:]
    if rest[:1] == ["point"] and len(rest) > 1 and all(word in _ONES and _ONES[word] < 10 for word in rest[1:]):
        return Fraction(f"{whole}.{''.join(str(_ONES[word]) for word in rest[1:])}"), len(words)
    if rest[:1] == ["dozen"]:
        return Fraction(12 * whole), used + 1
    if rest[:1] and rest[0] in _PARTS and (whole == 1) != rest[0].endswith(("s",)):
        return Fraction(whole, _PARTS[rest[0]]), used + 1
    if rest[:1] == ["and"] and len(rest) > 1:
        part, more = _fraction(rest[1:])
        if part is not None and 0 < part < 1:
            return whole + part, used + 1 + more
    return Fraction(whole), used


def _whole(words: list[str]) -> tuple[int | None, int]:
    """A whole number at the beginning of words, and how many of them it took."""
    total = group = 0
    limit, room, used = 10**15, 100, 0  # each scale must be smaller than the last; room: what may still be added to the group
    index = 0
    while index < len(words):
        word = words[index]
        if word == "and":
            follows = words[index + 1] if index + 1 < len(words) else ""
            if room != 100 or not used or (words[index - 1] not in ("hundred", *_SCALES)) or follows not in {*_ONES, *_TENS}:
                break
            index += 1
            continue
        if word in _ONES and (_ONES[word] < 10 < room or room == 100) and (room == 100 or (room == 11 and _ONES[word])):
            group += _ONES[word]
            room = 0
        elif word in _TENS and room == 100:
            group += _TENS[word]
            room = 11
        elif word == "hundred" and 0 < group < 100 and group % 100 == group:
            group *= 100
            room = 100
        elif word in _SCALES and group > 0 and _SCALES[word] < limit:
            total += group * _SCALES[word]
            limit, group, room = _SCALES[word], 0, 100
        else:
            break
        index += 1
        used = index
    return (total + group, used) if used else (None, 0)


def chinese(text: str) -> tuple[Fraction | None, int]:
    """The same in Chinese numerals."""
    match = _CHINESE.match(text)
    if match is None or _WORDS_WITH_NUMERALS.match(text) or "第" in text[:1]:
        return None, 0
    sign = -1 if match.group(1) else 1
    below, above, whole, decimals = match.group(2), match.group(3), match.group(4), match.group(5)
    if below:
        bottom, top = _numeral(below), _numeral(above)
        if not bottom or top is None:
            return None, 0
        if below == "百":
            return None, 0
        return sign * Fraction(top, bottom), match.end()
    value = _numeral(whole)
    if value is None:
        return None, 0
    digits = "".join(str(_DIGITS[sign_]) for sign_ in decimals) if decimals else "0"
    return sign * Fraction(f"{value}.{digits}"), match.end()


def _numeral(text: str) -> int | None:
    """Value of Chinese numerals; None for what is no number."""
    if text == "百":
        return 100
    if len(text) > 1 and all(sign in _DIGITS for sign in text):  # 二零二四, a year; 一二 is "one or two"
        if len(text) < 3 or not {"零", "〇"} & set(text):
            return None
        return int("".join(str(_DIGITS[sign]) for sign in text))
    total = section = 0
    digit: int | None = None
    for sign in text:
        if sign in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[sign]
        elif sign in _PLACES:
            section += (1 if digit is None else digit) * _PLACES[sign]
            digit = None
        else:
            section += digit or 0
            if section + total == 0:
                return None
            if sign == "亿":
                total = (total + section) * _MYRIADS[sign]
            else:
                total += section * _MYRIADS[sign]
            section, digit = 0, None
    return total + section + (digit or 0)

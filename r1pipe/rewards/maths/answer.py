"""From cleaned text to a typed answer: a quantity, a relation, a group, a union, or words.

`read` gives the readings of an answer, most likely first: "1,234" is a number and also a list of two. Nothing is dropped on the
way; what has no reading as maths is `Words` and is compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from r1pipe.rewards.maths.clean import GAP, MONEY, ROW, TEXT_CLOSE, TEXT_OPEN, clean
from r1pipe.rewards.maths.compound import compound
from r1pipe.rewards.maths.decimals import ended, outward_brackets
from r1pipe.rewards.maths.expression import parse_prefix
from r1pipe.rewards.maths.readings import Group, Quantity, Reading, Relation, Words
from r1pipe.rewards.maths.spelled import with_digits
from r1pipe.rewards.maths.split import CLOSING, OPENING, closes_at, split_list, split_top
from r1pipe.rewards.maths.tokens import Node, ParseError
from r1pipe.rewards.maths.tree import names_in
from r1pipe.rewards.maths.units import Unit, known_letters, parse_unit

MAX_ANSWER_CHARS = 4000
MAX_ITEMS = 64
DECIMAL_COMMA = frozenset(
    ["cs", "da", "de", "es", "fi", "fr", "hu", "id", "it", "nb", "nl", "no", "pl", "pt", "ro", "ru", "sv", "tr", "uk", "vi"]
)
"""Languages that write 2,5 for two and a half and 1.234 for a thousand and some."""

_LEADING = re.compile(
    rf"^(?:(?:=|:|≈|∼|⇒|→|is\b|are\b|{TEXT_OPEN}[^{TEXT_CLOSE}]*(?:\b(?:is|are|equals)|=|:|：|是|为)\s*{TEXT_CLOSE})\s*)+"
)
_RELATION = re.compile(r"[=≠<>≤≥∈≈≡∼]")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:(?:,\d{2})*,\d{3}|(?:,\d{3})+|(?: \d{3})+|(?:'\d{3})+)(?![\d,])")
_DOT_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?:,\d+)?(?![\d.,])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d+),(\d+)(?![\d,])")
_MODULUS = re.compile(
    rf"\\pmod\s*\{{?\s*(\w+)\s*\}}?|\(\s*{TEXT_OPEN}?\s*\\?mod\s*{TEXT_CLOSE}?\s*(\w+)\s*\)|\b(?:\\?mod)\s*\{{?(\d+)\}}?\s*$"
)
_MULTIPLIER = re.compile(r"(?<=[\d.])\s*(万亿|[百千]万|万|亿|千(?![克米瓦卡焦])|百(?!分))")
_ONE_PAIR = re.compile(r"(?:\\?\{|[(\[])\s*-?([\d,]+)\s*(?:\\?\}|[)\]])")
_MULTIPLIERS = {"万": "0000", "亿": "00000000", "千": "000", "百": "00"}
_MONEY_FIRST = re.compile(rf"(-?)\s*({MONEY}|[€£¥₹]|\\euro|(?:US|A|C|HK|NT)?{MONEY}|Rs\.?|USD|EUR|RMB)\s*(?=[\d.])(.*)")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*([ap])\.?\s*m\.?", re.IGNORECASE)
_TWICE = re.compile(r"(.*[≤≥<>≠].*?|.*real numbers.*?):\s*([\[(ℝ].*)", re.DOTALL)
_LONE_UNIT = re.compile(rf"(-?[\d.,]+|.*[\d)}}π](?={GAP}))([ {GAP}]*)([msghLlNJWVA](?:\^\{{?-?\d\}}?)?)")
_UNIT_SIGN = r"[A-Za-zμ]{1,3}(?:\^\{?-?\d\}?)?"
_UNIT_FORMULA = re.compile(
    rf"(-?[\d.,]+|.*[\d)}}π](?={GAP}))([ {GAP}]*)({_UNIT_SIGN}(?:[ {GAP}]*[/·* {GAP}][ {GAP}]*{_UNIT_SIGN}){{1,3}})"
)
_BASED = re.compile(r"\((\d{1,400})\)_(?=[\d{])")
_QUOTED = re.compile(r"(['\"])([^'\"]*)\1")


def read(text: str, language: str = "en") -> list[Reading]:
    """The readings of an answer, most likely first; empty for an empty answer."""
    source = tidy(clean(text))
    if not source:
        return []
    if len(source) > MAX_ANSWER_CHARS:
        return [Words(source)]
    readings: list[Reading] = []
    amount = compound(source)
    if amount is not None:
        if "," not in source:
            return [amount]
        readings.append(amount)  # two answers, perhaps
    for variant in _variants(source, language):
        reading = read_one(variant)
        if reading is not None and reading not in readings:
            readings.append(reading)
        lone = _LONE_UNIT.fullmatch(variant) or _UNIT_FORMULA.fullmatch(variant)
        if lone and all(known_letters(name) for name in re.findall(r"[A-Za-zμ]+", lone.group(3))):
            measured = read_quantity(f"{lone.group(1)}{TEXT_OPEN}{lone.group(3)}{TEXT_CLOSE}")
            if measured is not None and measured.unit is not None:
                readings.append(replace(measured, loose=_doubt(lone.group(2), lone.group(3))))
    return readings


def _doubt(gap: str, unit: str) -> int:
    """How doubtful it is that letters behind a number are a unit: not for 20 m/s, some for 5 m, more for 5m."""
    if gap:
        return 0 if "/" in unit else 1
    return 1 if re.search(r"[\^/]", unit) else 2


def modulus(cleaned: str) -> str:
    """The modulus of a congruence; empty without one."""
    found = _MODULUS.search(cleaned)
    return next((group for group in found.groups() if group), "") if found else ""


def tidy(source: str) -> str:
    """Without wrapping boxes, leading equals signs, and punctuation at the end."""
    source = source.strip(f" {GAP}")
    if re.fullmatch(rf"{TEXT_OPEN}[^{TEXT_CLOSE}]*\d[^{TEXT_CLOSE}]*{TEXT_CLOSE}", source):
        source = source[1:-1]  # \text{5 apples}
    while True:
        before = source
        boxed = re.fullmatch(r"\\(?:boxed|fbox|ensuremath)\s*\{(.*)\}", source)
        if boxed and closes_at(source, source.index("{")) == len(source) - 1:
            source = boxed.group(1)
        source = _LEADING.sub("", source.strip(f" {GAP}"))
        source = source.rstrip(f" {GAP}{ROW}.;,:?。")
        if source.endswith("\\dots") and not re.search(r"[.,;]", source):
            source = source.removesuffix("\\dots")
        quoted = _QUOTED.fullmatch(source)
        if quoted:
            source = quoted.group(2)
        if source == before:
            return source


def _variants(source: str, language: str) -> Iterator[str]:
    """The text with separators inside numbers read in the ways that its language allows."""
    twice = _TWICE.fullmatch(source)
    if twice and _agree(twice.group(1).strip("\\{} "), twice.group(2)):  # one answer in two notations, x < 3: (-∞, 3)
        yield twice.group(2)
        return
    source = _BASED.sub(r"\1_", source) if ")_" in source else source
    source = re.sub(r"^(\d+) to (?=\d+$)", r"\1:", source)
    source = with_digits(outward_brackets(ended(source)))
    source = _MULTIPLIER.sub(lambda match: f"·1{''.join(_MULTIPLIERS[sign] for sign in match.group(1))}", source)
    comma_language = language in DECIMAL_COMMA
    if comma_language and _DECIMAL_COMMA.search(source) and not _THOUSANDS.search(source):
        yield _DECIMAL_COMMA.sub(r"\1.\2", source)
    grouped = _THOUSANDS.search(source)
    pair = _ONE_PAIR.fullmatch(source)
    if grouped and not (pair and pair.group(1) == grouped.group(0)):
        yield _THOUSANDS.sub(lambda match: re.sub(r"[, ']", "", match.group(0)), source)
    yield source
    dotted = _DOT_THOUSANDS.search(source)
    if dotted and (comma_language or dotted.group(0).count(".") > 1 or "," in dotted.group(0)):
        yield _DOT_THOUSANDS.sub(lambda match: match.group(0).replace(".", "").replace(",", "."), source)
    if not comma_language and not grouped and re.fullmatch(r"-?\d+,\d+\s*[^\d\s(){}\[\],;+*/=-][^\d,;]*", source):
        yield _DECIMAL_COMMA.sub(r"\1.\2", source)  # 2,74 €: a unit follows, so it is one number
    elif comma_language and _DECIMAL_COMMA.search(source):
        yield _DECIMAL_COMMA.sub(r"\1.\2", source)


def _prefix(source: str) -> tuple[Node, str] | None:
    try:
        return parse_prefix(source)
    except ParseError:
        return None


def _agree(one: str, two: str) -> bool:
    """Whether two notations describe the same set of real numbers."""
    from r1pipe.rewards.maths.realset import real_set, same_set

    if re.fullmatch(r"all real numbers|all reals", one.strip(" .").lower()):
        return two.strip() == "ℝ"
    readings = [read_one(one), read_one(two)]
    sets = [real_set(reading) if reading is not None else None for reading in readings]
    return sets[0] is not None and sets[1] is not None and same_set(sets[0], sets[1])


def read_one(source: str, depth: int = 0) -> Reading | None:
    """One reading of cleaned text."""
    source = source.strip(f" {GAP}")
    if not source:
        return None
    if depth > 6 or source in ("DNE", "dne"):
        return Words(source)
    clock = _CLOCK.fullmatch(source)
    if clock:
        return Words(f"{int(clock.group(1))}:{clock.group(2) or '00'} {clock.group(3).lower()}m")
    congruence = _MODULUS.search(source)
    if congruence:
        bare = source[: congruence.start()].strip() + source[congruence.end() :].strip()
        return read_one(bare, depth + 1) or Words(source)
    parts, joiner = split_list(source)
    if len(parts) > 1:
        return _list(parts, joiner, depth)
    relation = _relation(source, depth)
    if relation is not None:
        return relation
    for sign, kind in (("∪", "union"), ("∖", "difference"), ("∩", "intersection")):
        pieces = split_top(source, sign)
        if len(pieces) > 1:
            items = tuple(item for piece in pieces if (item := read_one(piece, depth + 1)) is not None)
            return Group(kind, items) if len(items) == len(pieces) else Words(source)
    group = _bracketed(source, depth)
    if group is not None:
        return group
    quantity = read_quantity(source)
    if quantity is not None:
        return quantity
    added = compound(source)
    if added is not None:
        return added
    ratio = split_top(source, ":")
    if 1 < len(ratio) < 7:
        terms = [read_quantity(term) for term in ratio]
        if all(term is not None for term in terms):
            return Group("ratio", tuple(term for term in terms if term is not None))
    digits = with_digits(source) if depth else source  # an item of a list; the whole text was looked at before
    return Words(source) if digits == source else read_one(digits, depth + 1)


def _list(parts: list[str], joiner: str, depth: int) -> Reading:
    items = [read_one(part, depth + 1) for part in parts[:MAX_ITEMS]]
    if len(parts) > MAX_ITEMS or any(item is None for item in items):
        return Words(", ".join(parts))
    read_items = [item for item in items if item is not None]
    head = read_items[0]
    if isinstance(head, Relation) and head.signs == ("≠",) and all(isinstance(item, Quantity) for item in read_items[1:]):
        others = (Relation(("≠",), (head.sides[0], item), (head.labels[0], "")) for item in read_items[1:])
        return Group("list", (head, *others), joiner=joiner)
    if isinstance(head, Relation) and head.signs == ("=",) and all(isinstance(item, Quantity) for item in read_items[1:]):
        return Relation(
            ("=",), (head.sides[0], Group("list", (head.sides[1], *read_items[1:]), joiner=joiner)), (head.labels[0], "")
        )
    return Group("list", tuple(read_items), joiner=joiner)


def _relation(source: str, depth: int) -> Relation | None:
    signs: list[str] = []
    sides: list[str] = [""]
    level, in_text = 0, False
    for character in source:
        in_text = (in_text or character == TEXT_OPEN) and character != TEXT_CLOSE
        level += (character in OPENING) - (character in CLOSING)
        if level == 0 and not in_text and _RELATION.match(character):
            signs.append(character)
            sides.append("")
        else:
            sides[-1] += character
    if not signs or len(signs) > 8:
        return None
    if not sides[-1].strip() or not sides[0].strip():
        return None
    read_sides = [read_one(side, depth + 1) or Words("") for side in sides]
    return Relation(
        tuple(signs), tuple(read_sides), tuple(re.sub(rf"[\s{GAP}{TEXT_OPEN}{TEXT_CLOSE}{{}}]", "", side) for side in sides)
    )


def _bracketed(source: str, depth: int) -> Reading | None:
    opening = "\\{" if source.startswith("\\{") else source[0]
    closing = source[-2:] if source.endswith("\\}") else source[-1]
    if (
        opening not in ("(", "[", "{", "\\{")
        or closing not in (")", "]", "}", "\\}")
        or closes_at(source, len(opening) - 1) != len(source) - 1
    ):
        return None
    inside = source[len(opening) : -len(closing)].strip(f" {GAP}")
    braces = opening in ("{", "\\{")
    if braces != (closing in ("}", "\\}")):
        return None
    if braces:
        builder = re.split(r"\||(?<=[A-Za-zℝ])\s*:", inside, maxsplit=1)
        if len(builder) == 2 and _RELATION.search(inside):
            name, condition = read_one(builder[0], depth + 1), read_one(builder[1], depth + 1)
            return Group("builder", (name, condition)) if name is not None and condition is not None else None
        if not inside:
            return Group("set", ())
    parts, joiner = split_list(inside)
    if len(parts) == 1 and not (opening == "\\{" and closing == "\\}"):
        measured = read_quantity(inside) if len(parts) == 1 else None
        return (
            measured if measured is not None and (measured.unit or measured.percent) else None
        )  # or the brackets of an expression
    items = [read_one(part, depth + 1) for part in parts[:MAX_ITEMS]]
    if len(parts) > MAX_ITEMS or any(item is None for item in items):
        return None
    members = tuple(item for item in items if item is not None)
    return Group("set", members) if braces else Group("tuple", members, brackets=opening + closing, joiner=joiner)


def _counted(source: str) -> Quantity | None:
    """A plain whole number with words behind it: in "5 red apples", red is no product of variables."""
    counted = re.fullmatch(r"(-?\d{1,400}) +([A-Za-z][A-Za-z -]*[A-Za-z])", source)
    unit = parse_unit(counted.group(2)) if counted else None
    return Quantity(("num", Fraction(counted.group(1))), unit) if counted and unit is not None and unit.words else None


def read_quantity(source: str) -> Quantity | None:
    """An expression with at most a unit, a currency or a percent sign."""
    source = source.strip(f" {GAP}")
    money = _MONEY_FIRST.fullmatch(source)
    unit: Unit | None = None
    if money:
        unit = parse_unit("$" if MONEY in money.group(2) else money.group(2))
        source = money.group(1) + money.group(3)
    found = _prefix(source)
    if found is None:
        return None
    node, rest = found
    percent = rest.startswith("%")
    rest = rest.removeprefix("%").strip(f" {GAP}")
    if rest:
        behind = parse_unit(rest)
        if behind is None or (behind.words and names_in(node)):
            return _counted(source)  # "No solution" is not N·o of something
        unit = behind if unit is None or not unit.dimensions else unit
    literal = re.match(r"-?\s*(\d*)\.(\d+)(?![\d^])", source)
    places = digits = 0
    if literal and node[0] in ("num", "neg") and (node[0] == "num" or node[1][0] == "num"):
        places, digits = len(literal.group(2)), len((literal.group(1) + literal.group(2)).lstrip("0"))
    return Quantity(node, None if unit is None or unit.empty else unit, percent, places or None, digits)

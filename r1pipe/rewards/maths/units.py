"""Units of measure: what stands behind a number, and whether two of them mean the same quantity.

A known unit has a dimension and a factor, so 1.5 km equals 1500 m and 5 cm is not 5 m. Words that are no unit ("apples") must be
the same words, singular or plural, when both answers carry some. Money counts as a unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from r1pipe.rewards.maths.clean import GAP, MONEY, TEXT_CLOSE, TEXT_OPEN, without_marks
from r1pipe.rewards.words import words_in

_UNITS: dict[str, dict[str, str]] = {
    "length": {
        "1": "m meter meters metre metres 米 公尺 メートル",
        "1/100": "cm centimeter centimeters centimetre centimetres 厘米 公分 センチ",
        "1/1000": "mm millimeter millimeters millimetre millimetres 毫米",
        "1/10": "dm decimeter decimeters decimetre decimetres 分米",
        "1000": "km kilometer kilometers kilometre kilometres 千米 公里", "254/10000": "in inch inches 英寸",
        "3048/10000": "ft foot feet 英尺", "9144/10000": "yd yard yards", "1609344/1000": "mi mile miles 英里",
        "1/1000000": "μm micrometer micrometers", "1/1000000000": "nm nanometer nanometers",
    },
    "time": {
        "1": "s sec secs second seconds 秒", "60": "min mins minute minutes 分钟 分", "3600": "h hr hrs hour hours 小时 时",
        "86400": "day days 天 日", "604800": "week weeks 周 星期", "1/1000": "ms millisecond milliseconds",
    },
    "months": {"1": "month months 月 个月", "12": "year years yr yrs 年"},
    "mass": {
        "1": "g gram grams 克", "1000": "kg kilogram kilograms kilo kilos 千克 公斤", "1/1000": "mg milligram milligrams 毫克",
        "1000000": "t ton tons tonne tonnes 吨", "45359237/100000": "lb lbs pound pounds 磅",
        "28349523125/1000000000": "oz ounce ounces 盎司",
        "500": "斤",
    },
    "volume": {
        "1/1000": "L l liter liters litre litres 升", "1/1000000": "mL ml milliliter milliliters millilitre millilitres 毫升 cc",
        "3785411784/1000000000000": "gal gallon gallons", "473176473/1000000000000": "pint pints",
        "946352946/1000000000000": "quart quarts",
    },
    "angle": {"1": "° deg degree degrees 度", "1/60": "arcminute arcminutes", "1/3600": "arcsecond arcseconds"},
    "radian": {"1": "rad rads radian radians 弧度"},
    "dollar": {"1": f"{MONEY} $ dollar dollars usd bucks 美元", "1/100": "cent cents ¢ 美分"},
    "euro": {"1": "€ euro euros eur \\euro 欧元"},
    "pound sterling": {"1": "£ gbp sterling 英镑"},
    "yuan or yen": {"1": "¥ yuan rmb cny yen jpy 元 円 块 人民币", "1/10": "角", "1/100": "分钱"},
    "rupee": {"1": "₹ rs rupee rupees"},
    "temperature C": {"1": "°C celsius 摄氏度"},
    "temperature F": {"1": "°F fahrenheit 华氏度"},
    "force": {"1": "N newton newtons 牛 牛顿"},
    "energy": {"1": "J joule joules 焦 焦耳", "1000": "kJ kilojoule kilojoules 千焦"},
    "power": {"1": "W watt watts 瓦 瓦特", "1000": "kW kilowatt kilowatts 千瓦"},
    "current": {"1": "A amp amps ampere amperes 安 安培"},
    "voltage": {"1": "V volt volts 伏 伏特"},
    "pressure": {"1": "Pa pascal pascals 帕", "1000": "kPa"},
    "frequency": {"1": "Hz hertz 赫兹", "1000": "kHz", "1000000": "MHz"},
    "amount": {"1": "mol mole moles 摩尔"},
}  # fmt: skip
_SPEEDS = {"mph": "miles per hour", "kmh": "km per h", "kph": "km per h", "mps": "m per s", "rpm": "revolutions per minute"}
_GENERIC = frozenset({"unit", "units", "单位"})
_FILLER = frozenset({"of", "the", "in", "total", "each", "about", "a", "an", "approximately", "altogether"})
_NO_UNIT = words_in(
    "not no nor neither never isn wasn isnt wrong incorrect false invalid except but instead either unless maybe plus minus"
    " infinity infinite factorial squared cubed one two three four five six seven eight nine ten eleven twelve twenty thirty"
    " forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen half halves third thirds fourths"
    " fifths sixths eighths tenths hundredths nicht kein falsch pas faux falso incorrecto не неверно"
)
"""Words that say something else of a number than what it counts."""
_NO_UNIT_SIGNS = re.compile("^(?:[不错非没十百千万亿]|是错|并非)|不是|不对|错误")
_BEHIND = {"squared": 2, "cubed": 3}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "平方": 2, "立方": 3}
_TOKEN = re.compile(
    rf"(°[CF]?|\\euro|[¢€£¥₹$%{MONEY}]|平方|立方|[A-Za-zμ\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]+|[^\W\dA-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f平立]+)(?:\^(-?\d))?|(/)"
)
_PHRASE = re.compile(rf"[\w\s°¢€£¥₹$/^*·×().,{{}}\\'{MONEY}{GAP}{TEXT_OPEN}{TEXT_CLOSE}-]{{1,80}}")
_MARKS = re.compile(r"[.,'(){}*·×]|-(?!\d)")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure.

    Attributes:
        dimensions: (dimension, power) pairs of the units in the table, sorted.
        factor: how many base units it is.
        words: words that are not in the table.
    """

    dimensions: tuple[tuple[str, int], ...] = ()
    factor: Fraction = Fraction(1)
    words: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """No unit at all ("square units" says no more)."""
        return not self.dimensions and not self.words


@lru_cache(maxsize=1)
def _names() -> dict[str, tuple[str, Fraction]]:
    return {
        name: (dimension, Fraction(factor))
        for dimension, sizes in _UNITS.items()
        for factor, names in sizes.items()
        for name in names.split()
    }


def known(word: str) -> bool:
    """Whether a bare word of two letters or more is a unit that no one would take for a product of variables."""
    return len(word) > 1 and (word in _names() or word.lower() in _names() or word.lower() in _SPEEDS or word.lower() in _GENERIC)


def known_letters(letters: str) -> bool:
    """Whether letters as they are written, case kept, are the sign of a unit."""
    return letters in _names()


@lru_cache(maxsize=4096)
def parse_unit(text: str) -> Unit | None:
    """The unit that a text is; None when the text is something else (a formula, a sentence)."""
    text = without_marks(text)
    if not _PHRASE.fullmatch(text):
        return None
    text = re.sub(f"[{GAP}{TEXT_OPEN}{TEXT_CLOSE}]", " ", text)
    text = _MARKS.sub(" ", re.sub(r"\s*\^\s*\{?\s*(-?\d)\s*\}?", r"^\1", text))
    for short, full in _SPEEDS.items():
        text = re.sub(rf"\b{short}\b", full, text, flags=re.IGNORECASE)
    if _TOKEN.sub("", text).strip():
        return None
    dimensions: dict[str, int] = {}
    factor, words, sign, pending = Fraction(1), set[str](), 1, 1
    tokens = _TOKEN.findall(text)
    last: tuple[str, Fraction, int] | None = None
    for name, exponent, slash in tokens:
        if slash or name.lower() == "per":
            sign = -1
        elif name.lower() in _BEHIND and last:  # 5 cm squared
            more = last[2] * (_BEHIND[name.lower()] - 1)
            dimensions[last[0]] += more
            factor *= last[1] ** more
            last = None
        elif name.lower() in _NO_UNIT:
            return None
        elif name.lower() in _POWERS:
            pending = _POWERS[name.lower()]
        elif name.lower() in _FILLER and len(tokens) > 1:
            continue
        elif (found := _names().get(name) or _names().get(name.lower())) is not None:
            power = sign * pending * int(exponent or 1)
            dimension, size = ("length", 3) if found[0] == "volume" else (found[0], 1)
            dimensions[dimension] = dimensions.get(dimension, 0) + size * power
            factor *= found[1] ** power
            pending = 1
            last = (found[0], found[1], power) if size == 1 else None
        elif _NO_UNIT_SIGNS.search(name):
            return None
        elif name.lower() not in _GENERIC:
            words.add(_stem(name))
    if dimensions.keys() & {"temperature C", "temperature F"}:
        dimensions.pop("angle", None)  # degrees Celsius
    return Unit(tuple(sorted((name, power) for name, power in dimensions.items() if power)), factor, frozenset(words))


def _stem(word: str) -> str:
    """Singular of an English word, roughly: both sides go through it."""
    word = word.lower()
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def ratio(first: Unit | None, second: Unit | None) -> Fraction | None:
    """What a number with the first unit is multiplied with to be one with the second; None when the units do not agree.

    A missing unit agrees with any: a bare number answers "how many metres?".
    """
    if first is None or second is None or first.empty or second.empty:
        return Fraction(1)
    if first.dimensions and second.dimensions:
        return first.factor / second.factor if first.dimensions == second.dimensions else None
    if first.words and second.words:
        return Fraction(1) if first.words <= second.words or second.words <= first.words else None
    return None

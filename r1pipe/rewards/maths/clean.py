"""One spelling for one thing: answers arrive in LaTeX, Markdown and a dozen scripts, and leave as plain maths text.

`clean` never changes what an answer says; it removes what only concerns its looks (spacing commands, `\\left`, dollar signs,
full-width forms) and spells symbols one way (≤ for `\\le`, `\\leq`, `\\leqslant`, `<=`). Words that LaTeX sets upright stay
marked, between `TEXT_OPEN` and `TEXT_CLOSE`, so that the parser can tell "cm" the unit from c times m. Every pattern is
linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

TEXT_OPEN, TEXT_CLOSE = "\ue000", "\ue001"
MONEY = "\ue002"
"""A dollar sign that is money."""
GAP = "\ue003"
"""A visible space in maths, such as `\\;`: what follows a number after it is a unit rather than a factor."""
ROW = "\ue004"
"""The end of a matrix row."""

_CHARACTERS = {
    **dict(zip("，；：（）［］｛｝！？．。、﹪％＄＝＋－＜＞｜～＾＊／＼", ",;:()[]{}!?..,%%$=+-<>|~^*/\\", strict=True)),
    **dict.fromkeys("−–—‐‑‒―﹣", "-"),
    **dict.fromkeys("\u00a0\u1680\u202f\u205f\u3000\t\r\n\f\v" + "".join(map(chr, range(0x2000, 0x200B))), " "),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f\ue000\ue001\ue002\ue003\ue004", ""),
    **dict.fromkeys("⋅·∙•‧・", "·"),
    **dict.fromkeys("⩽≦≤", "≤"),
    **dict.fromkeys("⩾≧≥", "≥"),
    **dict.fromkeys("“”„«»″「」『』", '"'),
    **dict.fromkeys("‘’′`", "'"),
    **dict.fromkeys("˚º", "°"),
    **dict.fromkeys("\u0335\u0336\u0337\u0338", "\\not "),  # struck out; with = it was composed to ≠ before
    "✕": "×", "∗": "*", "⁄": "/", "∕": "/", "∶": ":", "…": "\\dots ", "⋯": "\\dots ", "⌀": "∅",
    "।": ".", "॥": ".", "√": "\\sqrt ", "℃": "°C", "℉": "°F", "￥": "¥", "٫": ".", "٬": ",", "−": "-", "ϕ": "φ",
}  # fmt: skip
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n", strict=True))
_VULGAR = dict(
    zip(
        "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", ["12", "13", "23", "14", "34", "15", "25", "35", "45", "16", "56", "18", "38", "58", "78"], strict=True
    )
)

_SPELLING = {
    "≤": "le leq leqslant leqq", "≥": "ge geq geqslant geqq", "≠": "ne neq", "<": "lt", ">": "gt", "∞": "infty",
    "∪": "cup bigcup",
    "∩": "cap bigcap", "∖": "setminus backslash", "∈": "in isin", "±": "pm", "∓": "mp", "×": "times", "·": "cdot bullet ast",
    "÷": "div", "→": "to rightarrow longrightarrow mapsto", "⇒": "implies Rightarrow Longrightarrow therefore", "π": "pi",
    "≈": "approx simeq", "|": "vert lvert rvert mid Vert lVert rVert", "°": "degree textdegree", "≡": "equiv", "∼": "sim",
    ":": "colon ratio", "(": "lparen langle", ")": "rparen rangle", "[": "lbrack", "]": "rbrack", "\\{": "lbrace",
    "\\}": "rbrace",
    "φ": "varphi phi", "ε": "varepsilon epsilon", "θ": "theta vartheta", "\\frac": "dfrac tfrac cfrac sfrac nicefrac",
    "\\binom": "dbinom tbinom", "∅": "emptyset varnothing", "\\dots": "ldots cdots dotsb dotsc dotsm dotsi dotso vdots ddots",
    "\\euro": "texteuro", "¥": "yen textyen", "£": "pounds textsterling mathsterling", "ℓ": "ell", " or ": "lor vee",
    " and ": "land wedge", ROW: "cr newline", GAP: "quad qquad enskip enspace thinspace medspace thickspace space",
    "": "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle scriptstyle"
    " limits nolimits rm bf it boldmath hfill strut null leavevmode mathstrut noindent raggedright negthinspace left. right."
    " large Large LARGE huge Huge small tiny normalsize",
}  # fmt: skip
_DOUBLED = re.compile(
    r"(?<!\\)\\\\(?=(?:[dtc]?frac|sqrt|left|right|pi|theta|cdot|times|text|mathrm|boxed|infty|cup|cap|leq?|geq?|neq?|pm|circ|in|ln|log"
    r"|sin|cos|tan|quad|overline|angle|begin|end|mathbb|alpha|beta|gamma|lambda|mu|sigma|phi|omega)(?![a-zA-Z]))"
)
_SINGLE = re.compile(r"(?<!\\)\\[a-zA-Z]")
_ROW = re.compile(r"\\\\(?:\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\])?")
_COMMAND = re.compile(r"\\(quad|left\.|right\.|[a-zA-Z]+)\s?")
_THOUSANDS_GAP = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\[,;:! ]|~|\{\\,\}|\\thinspace|\{ \})\s*(?=\d{3}(?!\d))")
_GAPS = re.compile(r"\\[;:,>]|\\ ")
_TEXT = re.compile(
    r"\\(?:text|textrm|textbf|textit|textsf|texttt|textnormal|textup|textsc|mbox|hbox|mathrm|mathit|mathsf|mathtt|operatorname\*?"
    r"|emph|underline|mathop|mathbin|mathord)\s*\{([^{}\\]*(?:\\[ %$,;][^{}\\]*)*)\}"
)
_SYMBOL = re.compile(
    r"\\(mathbf|mathbb|mathcal|mathfrak|mathscr|boldsymbol|bm|vec|hat|bar|tilde|dot|overrightarrow|overline|widehat|widetilde"
    r"|overleftrightarrow|pmb)(?:\s*\{([A-Za-z]{1,4})\}|\s+([A-Za-z])(?![A-Za-z]))"
)
_MARKING = {"bar": "bar", "overline": "bar", "dot": "dot"}
_BLACKBOARD = dict(zip("RNZQC", "ℝℕℤℚℂ", strict=True))
_ASCII = [
    (re.compile(r"<=|=<"), "≤"), (re.compile(r">="), "≥"), (re.compile(r"!=|<>|\\not\s*="), "≠"), (re.compile(r"\*\*"), "^"),
    (re.compile(r"(?<=\d) ?[xX] ?(?=10 ?\^)|(?<=\d) x (?=\d)"), "×"), (re.compile(r"\+/-|\+-"), "±"),
    (re.compile(r"=="), "="), (re.compile(r"->"), "→"), (re.compile(r"\.{3,}"), "\\\\dots "),
]  # fmt: skip
_DEGREES = re.compile(r"\^\s*(?:\{\s*(?:\\circ|∘|°|o)\s*\}|\\circ(?![a-zA-Z])|∘|°)|\\circ(?![a-zA-Z])")
_PERCENT = re.compile(
    rf"{TEXT_OPEN}\s*(?:percent|per cent|\\?%)\s*{TEXT_CLOSE}|\\?%|\b(?:percent|per cent|pct|percentage)\b\.?", re.IGNORECASE
)
_NEGATED = re.compile(r"\\not\s*(?:\\(?:in|ni|subset|equiv)(?![a-zA-Z])|∈|≡)|\\notin(?![a-zA-Z])")
_CIRCLED = re.compile(r"\\textcircled\s*\{?\s*([1-9]|1\d|20)\s*\}?")
_UNSEEN = re.compile(r"\\(?:tag|label|ref|color|textcolor|phantom|hspace|vspace)\*?\s*\{[^{}]*\}")


@lru_cache(maxsize=1)
def _characters_table() -> dict[int, str]:
    table = {ord(key): value for key, value in _CHARACTERS.items()}
    return {**{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}, **table}


@lru_cache(maxsize=1)
def _commands() -> dict[str, str]:
    return {name: symbol for symbol, names in _SPELLING.items() for name in names.split()}


def clean(text: str) -> str:
    """Plain maths text: one spelling per symbol, no decoration, single spaces."""
    text = _characters(text).strip()
    if text.startswith("**") and text.endswith("**"):
        text = text.strip("*")
    if "\\" in text:
        text = _latex(text)
    text = _dollars(text).replace("{,}", ",").replace("~", GAP)
    for pattern, symbol in _ASCII:
        text = pattern.sub(symbol, text)
    return " ".join(_PERCENT.sub("%", _DEGREES.sub("°", text)).split())


def _latex(text: str) -> str:
    """Spacing, sizes and synonyms of LaTeX commands."""
    if _DOUBLED.search(text) and not _SINGLE.search(text):
        text = text.replace("\\\\", "\\")  # escaped twice on its way here
    text = _NEGATED.sub("∉", _ROW.sub(ROW, _DOUBLED.sub(r"\\", text)))
    text = text.replace("\\$", MONEY).replace("\\(", " ").replace("\\)", " ").replace("\\[", " ").replace("\\]", " ")
    text = _THOUSANDS_GAP.sub("", _UNSEEN.sub("", text))
    text = _CIRCLED.sub(lambda match: chr(0x2460 + int(match.group(1)) - 1), text)
    for _ in range(3):  # \text{\textbf{…}}: innermost first
        text, count = _TEXT.subn(_upright, text)
        if not count:
            break
    text = _DEGREES.sub("°", _SYMBOL.sub(_symbol, text))
    text = _GAPS.sub(GAP, text.replace("\\!", ""))
    names = _commands()
    return _COMMAND.sub(lambda match: names.get(match.group(1), match.group(0)), text)


def _characters(text: str) -> str:
    """Other scripts' digits, full-width forms, superscripts and vulgar fractions, as LaTeX or ASCII."""
    if text.isascii():
        return text
    out: list[str] = []
    for character in unicodedata.normalize("NFC", text).translate(_characters_table()):
        if character < "\x80":
            out.append(character)
        elif character in _SUPERSCRIPTS:
            out.append("^{" + _SUPERSCRIPTS[character] + "}")
        elif character in _SUBSCRIPTS:
            out.append("_{" + _SUBSCRIPTS[character] + "}")
        elif "\U0001d400" <= character <= "\U0001d7ff":  # letters and digits in a mathematical type
            out.append(unicodedata.normalize("NFKC", character))
        elif character in _VULGAR:
            out.append(f"\\frac{{{_VULGAR[character][0]}}}{{{_VULGAR[character][1]}}}")
        elif unicodedata.category(character) == "Nd":
            out.append(str(unicodedata.decimal(character)))
        else:
            out.append(character)
    return "".join(out).replace("}^{", "").replace("}_{", "")  # ¹² is one exponent, 12


def without_marks(text: str) -> str:
    """Without vowel signs and other combining marks, which would cut the words of Indic scripts into pieces."""
    return text if text.isascii() else "".join(character for character in text if unicodedata.category(character)[0] != "M")


def _dollars(text: str) -> str:
    """Maths delimiters go; an odd dollar beside a digit is money and stays, as `MONEY`."""
    if "$" not in text:
        return text
    if text.count("$") % 2:
        text = re.sub(r"\$(?=\s*\d)|(?<=\d)\s*\$", MONEY, text)
    return text.replace("$", " ")


def _upright(match: re.Match[str]) -> str:
    word = re.sub(r"\\[ ,;]|~", " ", match.group(1))
    if len(word) == 1 and not match.group(0).startswith("\\text"):
        return word  # \mathrm{e} is e, but \mathrm{~s} are seconds
    return TEXT_OPEN + word + TEXT_CLOSE


def _symbol(match: re.Match[str]) -> str:
    name: str = match.group(2) or match.group(3)
    if match.group(1) in _MARKING and len(name) == 1:
        return f"{name}_{{{_MARKING[match.group(1)]}}}"  # the conjugate of z is not z
    return _BLACKBOARD.get(name, name) if match.group(1) == "mathbb" else name


def plain(text: str) -> str:
    """The words of a cleaned answer, for comparison as text: casefolded, without marks, quotes, brackets around it, end
    punctuation.
    """
    words = text.translate({ord(TEXT_OPEN): " ", ord(TEXT_CLOSE): " ", ord(GAP): " ", ord(MONEY): "$"})
    words = re.sub(r"(?<!\w)'([^']*)'(?!\w)", r" \1 ", words)  # quotes around words go; A' keeps its mark
    words = re.sub(r"\*\*|(?<!\\)[{}]|\"|\\(?![{}])", " ", words)
    words = " ".join(words.casefold().split()).strip(" .,;:!?")
    if len(words) > 2 and words[0] == "(" and words[-1] == ")" and "(" not in words[1:]:
        words = words[1:-1].strip()
    return re.sub(r"^(?:the|a|an)\s+", "", words)

"""What a word is, which language it is in, and what the language reward makes of it."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r1pipe.data.rows import Attempt, Problem
from r1pipe.errors import DataError
from r1pipe.rewards import language_spans
from r1pipe.rewards.base import Score
from r1pipe.rewards.language import (
    LanguageConsistency,
    base_language,
    dominant_language,
    is_known_language,
    language_counts,
    language_share,
)
from r1pipe.rewards.language_spans import label_words
from r1pipe.rewards.words import split_words

THINKING = {
    "en": (
        "First I add the number of apples in the two baskets. Then I take away those that were eaten on "
        "the way home. So six are left."
    ),
    "fr": (
        "D'abord j'additionne le nombre de pommes dans les deux paniers. Ensuite je retire celles qui "
        "ont été mangées. Il en reste six."
    ),
    "de": (
        "Zuerst zähle ich die Äpfel in beiden Körben zusammen. Dann ziehe ich diejenigen ab, die "
        "gegessen wurden. Also bleiben sechs übrig."
    ),
    "es": (
        "Primero sumo el número de manzanas de las dos cestas. Luego quito las que se comieron por el "
        "camino. Así que quedan seis manzanas."
    ),
    "pt": (
        "Primeiro somo o número de maçãs nas duas cestas. Depois retiro as que foram comidas no caminho "
        "para casa. Então sobram seis maçãs."
    ),
    "it": (
        "Prima sommo il numero di mele nei due cesti. Poi tolgo quelle che sono state mangiate lungo la "
        "strada. Quindi ne rimangono sei."
    ),
    "nl": (
        "Eerst tel ik de appels in de twee manden bij elkaar op. Daarna haal ik degene eraf die "
        "onderweg werden gegeten. Er blijven zes over."
    ),
    "pl": (
        "Najpierw dodaję liczbę jabłek w obu koszykach. Potem odejmuję te, które zostały zjedzone po "
        "drodze do domu. Zostaje więc sześć."
    ),
    "sv": (
        "Först lägger jag ihop antalet äpplen i de två korgarna. Sedan drar jag bort dem som åts upp på "
        "vägen hem. Då blir det sex kvar."
    ),
    "tr": (
        "Önce iki sepetteki elma sayısını topluyorum. Sonra eve giderken yenen elmaları çıkarıyorum. "
        "Demek ki geriye altı elma kalıyor."
    ),
    "id": (
        "Pertama saya menjumlahkan apel di kedua keranjang. Kemudian saya mengurangi apel yang dimakan "
        "di jalan. Jadi tersisa enam apel."
    ),
    "vi": (
        "Trước tiên tôi cộng số táo trong hai giỏ. Sau đó tôi trừ đi những quả đã ăn trên đường về nhà. Vậy còn lại sáu quả táo."
    ),
    "sw": (
        "Kwanza ninajumlisha idadi ya matofaa katika vikapu viwili. Kisha ninaondoa yale yaliyoliwa "
        "njiani. Kwa hiyo yamebaki sita."
    ),
    "ru": (
        "Сначала я складываю число яблок в двух корзинах. Затем вычитаю те, которые съели по дороге "
        "домой. Значит, осталось шесть."
    ),
    "uk": (
        "Спочатку я додаю кількість яблук у двох кошиках. Потім віднімаю ті, які з'їли дорогою додому. "
        "Отже, залишилося шість яблук."
    ),
    "bg": (
        "Първо събирам броя на ябълките в двете кошници. После изваждам тези, които са били изядени по пътя. Значи остават шест."
    ),
    "ar": "أولا أجمع عدد التفاحات في السلتين. ثم أطرح التفاحات التي أكلت في الطريق إلى البيت. إذن تبقى ست تفاحات.",
    "fa": "اول تعداد سیب‌های دو سبد را جمع می‌کنم. سپس سیب‌هایی را که در راه خانه خورده شد کم می‌کنم. پس شش سیب باقی می‌ماند.",
    "hi": "पहले मैं दोनों टोकरियों के सेबों की संख्या जोड़ता हूँ। फिर रास्ते में खाए गए सेब घटाता हूँ। इसलिए छह सेब बचते हैं।",
    "el": "Πρώτα προσθέτω τον αριθμό των μήλων στα δύο καλάθια. Μετά αφαιρώ όσα φαγώθηκαν στον δρόμο. Άρα μένουν έξι μήλα.",
    "th": "ก่อนอื่นฉันบวกจำนวนแอปเปิลในตะกร้าสองใบ จากนั้นลบผลที่กินไประหว่างทาง ดังนั้นเหลือหกผล",
    "zh": "首先，我把两个篮子里的苹果加起来。然后减去路上吃掉的苹果。所以还剩六个苹果。",
    "ja": "まず、二つのかごのりんごの数を足します。次に、帰り道で食べた分を引きます。だから六個残ります。",
    "ko": "먼저 두 바구니에 있는 사과의 수를 더합니다. 그다음 집에 오는 길에 먹은 사과를 뺍니다. 그래서 여섯 개가 남습니다.",
}


@pytest.mark.parametrize("language", THINKING)
def test_a_text_of_one_language_is_all_in_it_and_it_is_dominant(language: str) -> None:
    inside, total = language_share(THINKING[language], language)
    assert inside == total > 10
    assert dominant_language(THINKING[language]) == (language, 1.0)


@pytest.mark.parametrize("language", [language for language in THINKING if language != "en"])
def test_another_language_than_english_is_not_english(language: str) -> None:
    assert language_share(THINKING[language], "en")[0] == 0
    assert language_share(THINKING["en"], language)[0] == 0


def test_the_share_of_a_mixed_text_is_the_share_of_its_sentences() -> None:
    draw = random.Random(0)
    errors = []
    for one, other in itertools.combinations(THINKING, 2):
        parts = [(language, part + ".") for language in (one, other) for part in THINKING[language].rstrip(".。।").split(". ")]
        draw.shuffle(parts)
        inside, total = language_share(" ".join(part for _, part in parts), one)
        counted = [(language, sum(word.units for word in split_words(part))) for language, part in parts]
        true = sum(units for language, units in counted if language == one) / sum(units for _, units in counted)
        errors.append(abs(inside / total - true))
    assert sum(errors) / len(errors) < 0.01


def test_a_chinese_sentence_has_about_as_many_units_as_characters() -> None:
    sentence = "我们首先把两个篮子里的苹果加起来然后减去吃掉的苹果"
    assert len(sentence) == 25
    assert language_share(sentence, "zh") == (25, 25)


NOT_WORDS = [
    "$x^2 + 3x = 10$", "\\(\\frac{a}{b}\\)", "\\[ x = y \\]", "$$\\sum_{k=1}^{n} k$$", "\\begin{align}a &= b\\end{align}",
    "\\boxed{42}",
    "```python\ndef solve(items): return sum(items)\n```", "`len(items)`", "https://example.org/some/path", "someone@example.org",
    "<b>", "<|im_end|>", "x", "3.14", "1,000", "3x", "x_1", "snake_case", "camelCase", "os.path.join()", "f()", "NASA", "GCD",
    "sin(x)",
    "5 km", "dx",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_WORDS)
def test_what_belongs_to_no_language_is_not_counted(text: str) -> None:
    assert split_words(text) == []
    chinese = "所以答案是这样的"
    assert language_share(f"{chinese} {text} {chinese}", "zh") == (16, 16)


def test_two_formulas_in_a_chinese_sentence_cost_nothing() -> None:
    assert language_share("解：由题意，得$x = y + z$，所以答案是$\\boxed{3}$，即 f(x) = ax + b。", "zh")[0] == 11


def test_money_is_not_mathematics() -> None:
    inside, total = language_share(
        "The base costs $6.50 and he adds extra meat for $2.00 and pays with a card for $5.00 at the shop.", "en"
    )
    assert inside == total == 17


def test_prose_between_dollars_is_still_prose() -> None:
    assert language_share("$我们先把它们加起来$", "en") == (0, 9)


def test_a_name_in_latin_letters_is_not_foreign_but_a_word_is() -> None:
    assert language_share("玛丽 Marie 一共支付了很多钱", "zh") == (10, 10)
    assert language_share("然后 Wait 我们再算一次", "zh") == (8, 9)
    assert language_share("我们 therefore 得到结果", "zh") == (6, 7)


def test_a_slip_of_one_sentence_is_seen() -> None:
    inside, total = language_share(THINKING["en"] + " " + THINKING["fr"].split(". ")[1] + ".", "en")
    assert 0.7 < inside / total < 0.85


def test_repeated_words_do_not_make_another_language() -> None:
    text = "The host opens a door. " + "If the car is behind Door 1, open Door 2. If it is behind Door 2, open Door 3. " * 8
    inside, total = language_share(text, "en")
    assert inside == total


def test_unsegmented_scripts_count_words_by_letters() -> None:
    words = split_words("คือการทดสอบ")
    assert [word.units for word in words] == [3]


def test_codes_are_reduced_to_the_language_and_no_is_a_language() -> None:
    assert [base_language(code) for code in ("zh-Hant", "pt_BR", "NB", "iw", "de-1996")] == ["zh", "pt", "no", "he", "de"]
    assert is_known_language("no")
    assert not is_known_language("xx")
    assert not is_known_language("")
    with pytest.raises(DataError, match='"xx"'):
        language_share("hello world", "xx")


def test_indonesian_and_malay_count_as_one_in_a_share() -> None:
    malay = (
        "Semua manusia dilahirkan bebas dan hendaklah bertindak dengan semangat persaudaraan kerana "
        "mereka mempunyai hak yang sama."
    )
    assert language_share(malay, "id")[0] == language_share(malay, "ms")[0] > 10
    assert dominant_language(malay)[0] == "ms"


def test_counts_by_language_add_up_to_the_words() -> None:
    counts = language_counts(THINKING["en"] + " " + THINKING["zh"])
    assert list(counts) == ["zh", "en"]
    assert sum(counts.values()) == language_share(THINKING["en"] + " " + THINKING["zh"], "en")[1]
    assert dominant_language("") == ("", 0.0)


def reward(text: str, language: str = "en", **options: object) -> Score:
    finish = str(options.pop("finish", "stop"))
    problem = Problem("p", "q", language=language)
    (score,) = LanguageConsistency(**options).score([Attempt(problem, text, finish=finish)])  # type: ignore[arg-type]
    assert score is not None
    return score


def test_the_reward_reads_the_thinking_and_the_note_shows_the_counts() -> None:
    text = f"<think>{THINKING['en']}</think>{THINKING['zh']}"
    assert reward(text) == Score(1.0, "25/25 words en")
    assert reward(text, scope="response").value < 0.6  # type: ignore[operator]
    assert reward(text, "zh") == Score(0.0, "0/25 words zh")


def test_leaving_the_thinking_out_does_not_pay_but_formulas_alone_are_neutral() -> None:
    assert reward("Just an answer.") == Score(0.0, "no thinking")
    assert reward("<think> </think>x") == Score(0.0, "empty thinking")
    assert reward("<think>$1 + 1 = 2$</think>2") == Score(1.0, "no countable words")
    assert reward("<think>$1 + 1 = 2$</think>2", neutral=0.5).value == 0.5
    assert reward("", finish="error").value is None


def test_unfinished_thinking_is_scored_for_what_is_there() -> None:
    assert reward(f"<think>{THINKING['en']}", finish="length").value == 1.0


def test_a_stray_word_does_not_become_advantage() -> None:
    text = "<think>" + "We add the numbers and then divide by two. " * 5 + "然后</think>4"
    exact = reward(text, grid=0)
    assert 0.94 < exact.value < 1.0  # type: ignore[operator]
    assert reward(text).value in (15 / 16, 1.0)
    assert reward(text, grid=4).value == 1.0
    assert reward(text, grid=0, floor=0.9).value == 1.0


def test_values_lie_on_the_grid() -> None:
    for chinese in range(1, 30):
        value = reward("<think>" + "We add the numbers. " * 5 + "我" * chinese + "</think>4").value
        assert value is not None
        assert Fraction(value).denominator in (1, 2, 4, 8, 16)


def test_a_language_that_cannot_be_counted_is_unjudged() -> None:
    assert reward("<think>hello world</think>x", "xx").value is None


@pytest.mark.parametrize(
    ("options", "word"), [({"grid": 3}, "grid 3"), ({"floor": 0.0}, "floor"), ({"scope": "answer"}, "scope")]
)
def test_bad_options_are_refused(options: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        LanguageConsistency(**options)  # type: ignore[arg-type]


def test_importing_the_reward_loads_no_model() -> None:
    code = (
        "import sys, r1pipe.rewards.language; print(any(m.split('.')[0] in ('py3langid', 'numpy', 'torch') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


scraps = st.lists(
    st.sampled_from(
        ["de ", "the ", "然后", "です", "$", "\\(", "`", "```", "<", "é", "\u0301", "1", ".", "\n", "Ελ", "คำ", "A", "_"]
    )
)


@settings(max_examples=60, deadline=None)
@given(st.text() | scraps.map("".join), st.sampled_from(["en", "zh", "ja", "ru", "th", "fr", "ar"]))
def test_any_text_can_be_counted(text: str, language: str) -> None:
    inside, total = language_share(text, language)
    assert 0 <= inside <= total
    assert sum(language_counts(text).values()) == total
    value = reward(f"<think>{text}</think>x", language).value
    assert value is not None
    assert 0.0 <= value <= 1.0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(THINKING)), st.sampled_from(["  ", "\n\n", "$x$ ", "`y` ", "42 "]))
def test_spacing_formulas_and_numbers_between_sentences_change_nothing(language: str, between: str) -> None:
    text = THINKING[language]
    assert language_share(text.replace(". ", ". " + between), language) == language_share(text, language)


MIXED_WORDS = [word for language in ("en", "en", "fr", "nl", "it") for word in THINKING[language].split()]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(MIXED_WORDS), min_size=1, max_size=60), st.sampled_from(["en", "fr", "id", "sr", "nl"]))
def test_words_that_are_plainly_in_the_language_are_labelled_as_the_search_would_label_them(
    words: list[str], language: str
) -> None:
    sentences = [index // 9 for index in range(len(words))]
    found = label_words(words, sentences, "Latin", language)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language_spans._Words, "plain", lambda *arguments: False)
        assert label_words(words, sentences, "Latin", language) == found

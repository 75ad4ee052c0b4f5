"""Built-in problems whose answer is one number: Chinese arithmetic and equations, stories of two steps in both languages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from r1pipe.data.nano.plans import Draft, PlanStep, in_range, run_plan

ENGLISH_NAMES = ("Tom", "Anna", "Ben", "Lily", "Sam", "Mia")
CHINESE_NAMES = ("小明", "小红", "小华", "小丽", "小刚", "小美")
ENGLISH_THINGS = ("apples", "books", "pens", "stars", "cards", "eggs")
CHINESE_THINGS = ("个苹果", "本书", "支笔", "颗星星", "张卡片", "个鸡蛋")

Story = Callable[[random.Random], tuple[tuple[int, int, int], list[PlanStep]]]


def chinese_arithmetic(rng: random.Random) -> Iterator[Draft]:
    """Chains of two or three numbers: sums and differences of two digits, or a small product and a sum."""
    templates = ("计算：{}", "{} 等于多少？", "求 {} 的值。")
    while True:
        if rng.random() < 0.7:
            top = rng.choice((9, 60, 90))
            numbers = [rng.randint(0 if top == 9 else 10, top) for _ in range(rng.randint(2, 3))]
            operators = [rng.choice("+-") for _ in numbers[1:]]
            plan: list[PlanStep] = [(numbers[0], operators[0], numbers[1])]
            if len(numbers) == 3:
                plan.append((None, operators[1], numbers[2]))
            text = str(numbers[0]) + "".join(f" {o} {n}" for o, n in zip(operators, numbers[1:], strict=True))
        else:
            a, b, c = rng.randint(2, 9), rng.randint(2, 9), rng.randint(0, 40)
            sign = rng.choice("+-")
            plan = [(a, "*", b), (None, sign, c)]
            text = f"{a} * {b} {sign} {c}"
        if in_range(plan):
            yield _draft(rng.choice(templates).format(text), plan, "arithmetic")


def chinese_equations(rng: random.Random) -> Iterator[Draft]:
    """Equations in one unknown, as in `gym.equations`."""
    templates = ("解方程：{}，求{}。", "已知 {}，{}等于多少？")
    while True:
        letter = rng.choice("xyzn")
        factor, constant, value = (rng.randint(1, 10) for _ in range(3))
        term = letter if factor == 1 else f"{factor}{letter}"
        form = rng.randrange(3)
        if form == 0:
            text, total = f"{term} + {constant}", factor * value + constant
            plan: list[PlanStep] = [(total, "-", constant)]
        elif form == 1:
            text, total = f"{term} - {constant}", factor * value - constant
            plan = [(total, "+", constant)]
        else:
            constant += factor * value
            text, total = f"{constant} - {term}", constant - factor * value
            plan = [(constant, "-", total)]
        if factor != 1:
            plan.append((None, "/", factor))
        if in_range(plan):
            yield _draft(rng.choice(templates).format(f"{text} = {total}", letter), plan, "equations")


def english_stories(rng: random.Random) -> Iterator[Draft]:
    """Stories of two steps in English."""
    yield from _stories(rng, ENGLISH_STORIES, ENGLISH_NAMES, ENGLISH_THINGS)


def chinese_stories(rng: random.Random) -> Iterator[Draft]:
    """Stories of two steps in Chinese."""
    yield from _stories(rng, CHINESE_STORIES, CHINESE_NAMES, CHINESE_THINGS)


def _stories(rng: random.Random, stories: dict[str, str], names: tuple[str, ...], things: tuple[str, ...]) -> Iterator[Draft]:
    kinds = list(stories)
    while True:
        kind = rng.choice(kinds)
        (a, b, c), plan = _NUMBERS[kind](rng)
        if not in_range(plan):
            continue
        name, other = rng.sample(names, 2)
        question = stories[kind].format(a=a, b=b, c=c, name=name, other=other, thing=rng.choice(things))
        yield _draft(question, plan, "stories")


def _draft(question: str, plan: list[PlanStep], source: str) -> Draft:
    answer = str(run_plan(plan)[-1][3])
    return Draft(question, answer, "maths", f"nano/{source}", {"plan": [list(step) for step in plan]})


def _packs(rng: random.Random) -> tuple[tuple[int, int, int], list[PlanStep]]:
    a, b, c = rng.randint(1, 40), rng.randint(2, 9), rng.randint(2, 9)
    return (a, b, c), [(b, "*", c), (a, "+", None)]


def _price(rng: random.Random) -> tuple[tuple[int, int, int], list[PlanStep]]:
    a, b, c = rng.randint(10, 90), rng.randint(2, 9), rng.randint(2, 9)
    return (a, b, c), [(b, "*", c), (a, "-", None)]


def _swap(rng: random.Random) -> tuple[tuple[int, int, int], list[PlanStep]]:
    a, b, c = rng.randint(10, 60), rng.randint(1, 40), rng.randint(1, 40)
    return (a, b, c), [(a, "-", b), (None, "+", c)]


def _share(rng: random.Random) -> tuple[tuple[int, int, int], list[PlanStep]]:
    c, each = rng.randint(2, 9), rng.randint(2, 9)
    a = rng.randint(1, c * each - 1)
    return (a, c * each - a, c), [(a, "+", c * each - a), (None, "/", c)]


def _both(rng: random.Random) -> tuple[tuple[int, int, int], list[PlanStep]]:
    a, b = rng.randint(1, 40), rng.randint(1, 30)
    return (a, b, 0), [(a, "+", b), (a, "+", None)]


_NUMBERS: dict[str, Story] = {"packs": _packs, "price": _price, "swap": _swap, "share": _share, "both": _both}

ENGLISH_STORIES: dict[str, str] = {
    "packs": "{name} has {a} {thing} and buys {b} boxes of {c} {thing}. How many {thing} does {name} have now?",
    "price": "{name} has {a} dollars and buys {b} {thing} at {c} dollars each. How many dollars are left?",
    "swap": "{name} has {a} {thing}, gives {b} to {other} and then finds {c} more. How many {thing} does {name} have now?",
    "share": "{name} has {a} {thing} and {other} has {b}. They share them among {c} friends. How many does each friend get?",
    "both": "{name} has {a} {thing}. {other} has {b} more than {name}. How many {thing} do they have together?",
}

CHINESE_STORIES: dict[str, str] = {
    "packs": "{name}有{a}{thing}，又买了{b}盒，每盒{c}{thing}。{name}现在有多少{thing}？",
    "price": "{name}有{a}元，买了{b}{thing}，每{thing}{c}元。还剩多少元？",
    "swap": "{name}有{a}{thing}，给了{other}{b}{thing}，又得到{c}{thing}。{name}现在有多少{thing}？",
    "share": "{name}有{a}{thing}，{other}有{b}{thing}，平均分给{c}个朋友。每个朋友得到多少{thing}？",
    "both": "{name}有{a}{thing}，{other}比{name}多{b}{thing}。他们一共有多少{thing}？",
}

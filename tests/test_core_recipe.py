"""Recipes: what is refused, in which words, and what `--set` does to the text."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_pipeline import TOY

from r1pipe.errors import RecipeError
from r1pipe.recipe import apply_sets, load_recipe, pipeline_name
from r1pipe.recipe_text import duplicates, key_lines, line_of

HEAD = 'pipeline = "toy"\nbase = {model = "b"}\n'


def refused(text: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(HEAD + text, TOY, where="my.toml")
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[numbers]\n\n# c\ninner.weigth = 3", " line 6, [numbers.inner]: unknown key 'weigth'", "did you mean 'weight'?"),
        ("[work.dubble]\nsteps = 3", " line 3, [work]: unknown key 'dubble'", "did you mean 'double'?"),
        ("[nubmers]\ncount = 3", " line 3: unknown key 'nubmers'", "did you mean 'numbers'?"),
        ("sede = 3", " line 3: unknown key 'sede'", "did you mean 'seed'?"),
        ("[start]\ncount = 3", " line 4, [start]: unknown key 'count'", "'count' is a key of [numbers]"),
        ("[start]\nmicro_batch = 3", " line 4, [start]: unknown key 'micro_batch'", "'micro_batch' is a key of [launch]"),
        ("[start]\nzzz = 3", " line 4, [start]: unknown key 'zzz'", "known here: bonus"),
        ("[launch]\ntreads = 1", " line 4, [launch]: unknown key 'treads'", "did you mean 'threads'?"),
        (
            '[launch.steps."work/duble"]\nthreads = 1',
            " line 3, [launch.steps]: unknown key 'work/duble'",
            "did you mean 'work/double'?",
        ),
        ("[launch.steps.work]\nthread = 1", " line 4, [launch.steps.work]: unknown key 'thread'", "did you mean 'threads'?"),
        (
            "[numbers]\ncount = 1\nrate = 2.0\ncount = 2",
            ": count in [numbers] is given twice, on lines 4 and 6",
            "remove one of them",
        ),
        ("[numbers]\n[chat]\n[numbers]", ": numbers is given twice, on lines 3 and 5", "remove one of them"),
        ("seed = 1\nseed = 1", ": seed is given twice, on lines 3 and 4", "remove one of them"),
        ("[numbers]\nweights = {a = inf}", " line 4, [numbers.weights]: a is inf; it must be a finite number", ""),
        ("[numbers]\nweights = {a = [1]}", " line 4, [numbers.weights]: a is [1] (a list), where a number is expected", ""),
        ("numbers = 3", " line 3: numbers is 3, where a section [numbers] is expected", ""),
        ("launch = 3", " line 3: launch is 3, where a section [launch] is expected", ""),
        ("[launch]\nsteps = 3", " line 4, [launch]: steps is 3, where a section [launch.steps] is expected", ""),
        ("[work]\ndouble = 3", " line 4, [work]: double is 3, where a section [work.double] is expected", ""),
        ("seed = -1", " line 3: seed is -1; it must be greater than or equal to 0", ""),
        (
            "[numbers]\nlabel = plain",
            " is not TOML: Invalid value (at line 4, column 9)",
            "text needs quotes; see https://toml.io for the syntax",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_its_place(text: str, message: str, hint: str) -> None:
    assert refused(text) == f"my.toml{message}" + (f"\nhint: {hint}" if hint else "")


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("conut = 3", "unknown key 'conut'", "did you mean 'count'?"),
        ("rate = nan", "rate is nan; it must be a finite number", ""),
        ("rate = -inf", "rate is -inf; it must be a finite number", ""),
        ('rate = "nan"', 'rate is "nan"; it must be a finite number', ""),
        ("label = true", "label is true (true or false), where text is expected", 'put quotes around it: "true"'),
        ("label = 12", "label is 12 (a number), where text is expected", 'put quotes around it: "12"'),
        (
            "label = 2025-01-20",
            "label is 2025-01-20 (a date or time), where text is expected",
            'put quotes around it: "2025-01-20"',
        ),
        ("label = [1]", "label is [1] (a list), where text is expected", ""),
        ("count = true", "count is true, where a number is expected", ""),
        ("rate = false", "rate is false, where a number is expected", ""),
        ("flag = 1", "flag is 1, where true or false is expected", ""),
        ("flag = 7", "flag is 7 (a number), where true or false is expected", ""),
        ('count = "ten"', 'count is "ten" (text), where a whole number is expected', ""),
        ("count = 2.5", "count is 2.5 (a number), where a whole number is expected", ""),
        ("count = 0", "count is 0; it must be greater than 0", ""),
        ("inner = 3", "inner is 3 (a number), where a table is expected", ""),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_what_is_expected(line: str, message: str, hint: str) -> None:
    assert refused(f"[numbers]\n{line}") == f"my.toml line 4, [numbers]: {message}" + (f"\nhint: {hint}" if hint else "")


def test_all_mistakes_are_listed_in_the_order_of_the_file() -> None:
    message = refused("[work.double]\nstesp = 3\n[numbers]\ncount = true\nlabel = 3")
    assert message.split("\n") == [
        "my.toml line 4, [work.double]: unknown key 'stesp' (did you mean 'steps'?)",
        "my.toml line 6, [numbers]: count is true, where a number is expected",
        'my.toml line 7, [numbers]: label is 3 (a number), where text is expected (put quotes around it: "3")',
    ]


def test_numbers_in_quotes_are_numbers_where_numbers_are_expected() -> None:
    recipe = load_recipe(HEAD + '[numbers]\nrate = "5e-5"\ncount = "12"\n', TOY)
    assert recipe.configs["numbers"].model_dump()["rate"] == 5e-5
    assert recipe.configs["numbers"].model_dump()["count"] == 12


def test_exponents_without_a_dot_are_numbers() -> None:
    assert load_recipe(HEAD + "[numbers]\nrate = 5e-5", TOY).configs["numbers"].model_dump()["rate"] == 5e-5


def test_a_recipe_without_its_base_model_is_refused() -> None:
    with pytest.raises(RecipeError, match="names no base model"):
        load_recipe('pipeline = "toy"', TOY)


def test_a_recipe_for_another_pipeline_is_refused() -> None:
    with pytest.raises(RecipeError, match='pipeline is "other", but was read as "toy"') as refused:
        load_recipe('pipeline = "other"\nbase.model = "b"', TOY)
    assert refused.value.hint.startswith("start a new run from a recipe")
    assert pipeline_name('pipeline = "other"') == "other"
    assert pipeline_name("") == "r1"


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + "[numbers]\ncount = 7\n").replace("\n", "\r\n").encode())
    assert load_recipe(path, TOY).configs["numbers"].model_dump()["count"] == 7


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.toml: No such file"):
        load_recipe(tmp_path / "none.toml", TOY)
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(RecipeError, match=r"latin\.toml is not UTF-8 text \(byte 8\)"):
        load_recipe(tmp_path / "latin.toml", TOY)


def test_launch_defaults_are_overridden_by_stage_and_then_by_step() -> None:
    text = HEAD + (
        "[launch]\nthreads = 1\nprocesses = 2\nenv = {A = '1', B = '1'}\n"
        "[launch.steps.work]\nprocesses = 4\nenv = {B = '2'}\n"
        '[launch.steps."work/double"]\nprocesses = 8\n'
    )
    launches = load_recipe(text, TOY).launches
    assert [launches[step.name].processes for step in TOY.steps] == [2, 2, 8, 4]
    assert {launch.threads for launch in launches.values()} == {1}
    assert launches["work/double"].env == {"A": "1", "B": "2"}
    assert launches["start"].env == {"A": "1", "B": "1"}


def test_settings_hold_defaults_shared_sections_and_never_launch() -> None:
    recipe = load_recipe(HEAD + "[launch]\nthreads = 7\n[chat]\nsystem = 'x'\n", TOY)
    assert recipe.settings(TOY.step("work/double"))["chat"] == {"system": "x"}
    assert recipe.settings(TOY.step("work/double"))["work"]["double"]["factor"] == 2
    assert "chat" not in recipe.settings(TOY.step("numbers"))
    assert recipe.settings(TOY.step("start"), "abc")["base"] == {"digest": "abc"}
    assert "7" not in repr([recipe.settings(step) for step in TOY.steps])


COMMENTED = """# my recipe
name = "mine"   # a name
pipeline = "toy"

[base]
model = "b"  # the base

[numbers]  # first
count = 4  # few
# the end
"""


def test_set_keeps_comments_and_order_and_adds_what_is_missing() -> None:
    text = apply_sets(COMMENTED, ["numbers.count=9", "work/double.factor=5", "chat.system=a = b", "seed=7"], TOY)
    for line in ("# my recipe", 'name = "mine"   # a name', "[numbers]  # first", "count = 9  # few", "# the end"):
        assert line in text.split("\n")
    recipe = load_recipe(text, TOY)
    assert recipe.seed == 7
    assert recipe.settings(TOY.step("work/double"))["chat"] == {"system": "a = b"}
    assert recipe.settings(TOY.step("work/double"))["work"]["double"]["factor"] == 5


@pytest.mark.parametrize(
    ("item", "path", "value"),
    [
        ("numbers.rate=5e-5", ("numbers", "rate"), 5e-5),
        ("numbers.label=plain words", ("numbers", "label"), "plain words"),
        ('numbers.label="12"', ("numbers", "label"), "12"),
        ("numbers.label=", ("numbers", "label"), ""),
        ("numbers.label=x=y=z", ("numbers", "label"), "x=y=z"),
        ("numbers.label=a # b", ("numbers", "label"), "a # b"),
        ("numbers.flag=true", ("numbers", "flag"), True),
        ("numbers.weights={a = 1.5}", ("numbers", "weights"), {"a": 1.5}),
        ("numbers.weights.b=2", ("numbers", "weights", "b"), 2),
        ("numbers.inner.weight=2", ("numbers", "inner", "weight"), 2),
        ("work.total.sign=-1", ("work", "total", "sign"), -1),
        ("work/total.sign=-1", ("work", "total", "sign"), -1),
        ("launch.steps.work/double.threads=3", ("launch", "steps", "work/double", "threads"), 3),
        ("base.model=/some/where", ("base", "model"), "/some/where"),
    ],
)
def test_a_set_reaches_its_key(item: str, path: tuple[str, ...], value: object) -> None:
    found: object = tomllib.loads(apply_sets(COMMENTED, [item], TOY))
    for part in path:
        assert isinstance(found, dict)
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    ("item", "message", "hint"),
    [
        ("numbers.conut=3", "unknown key 'conut'", "did you mean 'count'?"),
        (
            "foo.bar=1",
            "unknown key 'foo'",
            "known here: name, pipeline, seed, base, chat, numbers, start, work, launch",
        ),
        ("numbers.count=abc", 'count is "abc" (text), where a whole number is expected', ""),
        ("numbers.count=0", "count is 0; it must be greater than 0", ""),
        ("numbers.rate=nan", "rate is nan; it must be a finite number", ""),
        ("numbers.label=3", "label is 3 (a number), where text is expected", 'put quotes around it: "3"'),
        ("seed", "there is no '='", "write --set section.key=value"),
        ("=3", "there is no key", "write --set section.key=value"),
        ("a b=3", "'a b' is not a key", "write --set section.key=value"),
        ("numbers.count.x=3", "numbers.count is a single value, not a section", "set it as a whole, or edit the recipe"),
        ("numbers.rate=1\nseed=5", 'rate is "1\\nseed=5" (text), where a number is expected', ""),
    ],
)
def test_a_wrong_set_is_refused_in_one_sentence(item: str, message: str, hint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        apply_sets(COMMENTED, [item], TOY)
    assert str(caught.value) == f"--set {item}: {message}" + (f"\nhint: {hint}" if hint else "")


def test_a_mistake_in_the_file_is_not_blamed_on_a_set() -> None:
    with pytest.raises(RecipeError, match=r"^my\.toml line 12, \[chat\]: unknown key"):
        apply_sets(COMMENTED + "[chat]\nsytem = 1\n", ["seed=1"], TOY, where="my.toml")


SCAN = '''a = 1 # b = 2
text = """
[no]
no = 1
"""
other = \'\'\'
no = [
\'\'\'
list = [ # [no]
  "no = ]",
  {x = 1},
]
"quoted.key"."é" = 'x # y'
[one . two]
x.y = {a = 1, b = "}"}
[[many]]
name = 1
[[many]]
name = 2
[many.sub]
deep = 3
'''


def test_keys_are_found_on_their_lines_and_never_inside_values() -> None:
    assert [(key.path, key.line) for key in key_lines(SCAN)] == [
        (("a",), 1),
        (("text",), 2),
        (("other",), 6),
        (("list",), 9),
        (("quoted.key", "é"), 13),
        (("one", "two"), 14),
        (("one", "two", "x", "y"), 15),
        (("many", 0), 16),
        (("many", 0, "name"), 17),
        (("many", 1), 18),
        (("many", 1, "name"), 19),
        (("many", 1, "sub"), 20),
        (("many", 1, "sub", "deep"), 21),
    ]
    assert duplicates(SCAN) == []
    assert line_of(key_lines(SCAN), ("list", 1, "x")) == 9
    assert line_of(key_lines(SCAN), ("nothing",)) is None


KEYS = st.sampled_from(
    ["seed", "name", "numbers.count", "numbers.rate", "numbers.label", "chat.system", "work.total.sign", "nothing"]
)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_no_text_makes_the_scanner_or_the_loader_raise_anything_else(text: str) -> None:
    key_lines(text)
    with contextlib.suppress(RecipeError):
        load_recipe(text, TOY)


@settings(max_examples=200, deadline=None)
@given(KEYS, st.text(max_size=30))
def test_a_set_is_applied_exactly_or_refused(key: str, value: str) -> None:
    try:
        after = tomllib.loads(apply_sets(COMMENTED, [f"{key}={value}"], TOY))
    except RecipeError:
        return
    before = tomllib.loads(COMMENTED)
    *outer, last = key.split(".")
    there_before, there_after = before, after
    for part in outer:
        there_before, there_after = there_before.setdefault(part, {}), there_after[part]
    there_before[last] = there_after[last]
    assert before == after

"""Where steps stand, what runs again and what does not, and what stops with a reason."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy_pipeline
from core_helpers import LOADER, Toy, write_model
from toy_pipeline import TOY

from r1pipe.errors import ArtifactError, R1PipeError, RecipeError, StateError, Stopped
from r1pipe.fork import fork, verify
from r1pipe.graph import Pipeline
from r1pipe.launch import StopRequest
from r1pipe.manifest import read_manifest
from r1pipe.observer import Observer
from r1pipe.recipe import load_recipe
from r1pipe.rundir import RunDir, new_run_path
from r1pipe.runner import execute

pytest_plugins = ("core_fixtures",)

ANSWER = {"total": 2 + sum(2 * (3 + step % 5) * step for step in range(1, 7))}  # the base's config.json has two bytes


def with_step(pipeline: Pipeline, name: str, **changes: Any) -> Pipeline:
    """The pipeline with one step altered, as a later version of the program would have it."""
    return replace(pipeline, steps=tuple(replace(step, **changes) if step.name == name else step for step in pipeline.steps))


def test_a_fresh_run_is_todo_then_runs_in_order_and_gives_the_right_answer(toy: Toy) -> None:
    assert set(toy.states().values()) == {"todo"}
    assert [manifest.step for manifest in toy.execute()] == ["numbers", "start", "work/double", "work/total"]
    assert set(toy.states().values()) == {"done"}
    assert json.loads(toy.path("work/total", "answer.json").read_text()) == ANSWER


def test_a_finished_run_does_nothing_more(finished: Toy) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.run.root.rglob("*") if path.is_file()}
    skipped: list[str] = []
    watch = Observer(on_skip=lambda step, manifest: skipped.append(step.name))
    assert execute(finished.run, TOY, finished.recipe, observer=watch, loader=LOADER) == []
    assert skipped == [step.name for step in TOY.steps]
    assert {path: path.stat().st_mtime_ns for path in finished.run.root.rglob("*") if path.is_file()} == before
    assert max(finished.tally().values()) == 1


def test_a_manifest_records_what_was_made_from_what(finished: Toy) -> None:
    manifest = read_manifest(finished.path("work/double", "manifest.json"))
    numbers = read_manifest(finished.path("numbers", "manifest.json"))
    assert manifest.inputs["values"].build == numbers.build
    assert manifest.inputs["values"].digest == numbers.outputs["values"].digest
    assert manifest.settings == {
        "seed": 3,
        "revision": 1,
        "chat": {"system": ""},
        "work": {"double": {"steps": 6, "factor": 2, "pause": 0.0, "fail": "", "ranks": False}},
    }
    assert manifest.summary == {"sum": ANSWER["total"] - 2, "system": ""}
    assert manifest.attempts == 1
    assert manifest.peak_memory_bytes > 1_000_000
    assert 0 < manifest.wall_seconds < 60
    assert manifest.versions["python"]
    start = read_manifest(finished.path("start", "manifest.json"))
    assert start.makes == "One"
    assert start.summary == {"base": start.inputs["base"].digest}
    assert start.inputs["base"].model == "base"


def test_a_changed_setting_stops_with_the_difference_and_two_commands(finished: Toy) -> None:
    finished.set("work.double.factor=3")
    assert finished.states() == {"numbers": "done", "start": "done", "work/double": "changed", "work/total": "stale"}
    with pytest.raises(StateError) as caught:
        finished.execute()
    assert str(caught.value) == (
        "step work/double of run demo is changed: it was made with other settings\n"
        "  work.double.factor: 2 -> 3\n"
        "step work/total of run demo is stale: it was made from work/double, which is changed now\n"
        "hint: r1pipe run-all --run demo --redo work/double   discards it and what was made from it: work/total\n"
        "r1pipe fork demo demo-2 --before work/double   keeps both; finished steps that do not depend on it are shared\n"
        "or put the old value back in runs/demo/recipe.toml"
    )
    assert max(finished.tally().values()) == 1
    finished.execute(redo=["work/double"])
    assert finished.tally() == {"numbers": 1, "start": 1, "work/double": 2, "work/total": 2}
    assert json.loads(finished.path("work/total", "answer.json").read_text()) == {"total": 2 + (ANSWER["total"] - 2) // 2 * 3}


def test_putting_the_old_value_back_makes_everything_done_again(finished: Toy) -> None:
    finished.set("work.double.factor=3")
    finished.set("work.double.factor=2")
    assert finished.execute() == []


def test_a_shared_section_belongs_to_the_steps_that_name_it(finished: Toy) -> None:
    finished.set("chat.system=be kind")
    places = finished.plan()
    assert [place.state for place in places] == ["done", "done", "changed", "stale"]
    assert places[2].changes == (("chat.system", "", "be kind"),)


def test_a_changed_seed_changes_every_step(finished: Toy) -> None:
    finished.set("seed=4")
    with pytest.raises(StateError, match=r"--redo numbers --redo start "):
        finished.execute()


def test_a_changed_launch_value_reruns_nothing(finished: Toy) -> None:
    finished.set("launch.threads=1", "launch.env.SOMETHING=else", "launch.steps.work/double.micro_batch=4", "launch.processes=2")
    assert finished.execute() == []


def test_redo_of_a_step_below_a_changed_one_is_refused_before_anything_is_discarded(finished: Toy) -> None:
    finished.set("work.double.factor=3")
    before = read_manifest(finished.path("work/total", "manifest.json")).build
    for only in (None, "work/total"):
        with pytest.raises(StateError, match="--redo work/double "):
            finished.execute(redo=["work/total"], only=only)
        assert read_manifest(finished.path("work/total", "manifest.json")).build == before


def test_redo_of_a_step_whose_input_is_missing_is_refused_before_anything_is_discarded(finished: Toy) -> None:
    shutil.rmtree(finished.path("work/double"))
    with pytest.raises(R1PipeError, match="work/double"):
        finished.execute(redo=["work/total"], only="work/total")
    assert finished.path("work/total", "manifest.json").exists()


def test_a_step_alone_below_a_changed_one_names_the_changed_one(finished: Toy) -> None:
    finished.set("work.double.factor=3")
    with pytest.raises(StateError, match="step work/double of run demo is changed") as caught:
        finished.execute(only="work/total")
    assert "--redo work/double " in str(caught.value)


def test_a_redone_step_makes_its_readers_stale_although_settings_are_equal(finished: Toy) -> None:
    shutil.rmtree(finished.path("numbers"))
    with pytest.raises(StateError, match="made from numbers, which is todo now"):
        finished.execute()
    finished.execute(only="numbers")
    assert finished.states() == {"numbers": "done", "start": "done", "work/double": "stale", "work/total": "stale"}
    with pytest.raises(StateError, match="made from an earlier numbers, which was made again since"):
        finished.execute()


def test_redo_discards_only_the_step_and_what_was_made_from_it(finished: Toy) -> None:
    build = read_manifest(finished.path("work/double", "manifest.json")).build
    finished.execute(redo=["start"])
    assert finished.tally() == {"numbers": 1, "start": 2, "work/double": 1, "work/total": 2}
    assert read_manifest(finished.path("work/double", "manifest.json")).build == build
    assert not finished.run.trash.exists()


def test_a_new_setting_with_a_default_does_not_invalidate(finished: Toy) -> None:

    class Later(toy_pipeline.DoubleConfig):
        momentum: float = 0.9

    assert {place.state for place in finished.plan(with_step(TOY, "work/double", config=Later))} == {"done"}


def test_a_new_default_inside_a_nested_table_does_not_invalidate(finished: Toy) -> None:

    class LaterInner(toy_pipeline.Inner):
        added: int = 1

    class Later(toy_pipeline.NumbersConfig):
        inner: LaterInner = LaterInner()

    assert {place.state for place in finished.plan(with_step(TOY, "numbers", config=Later))} == {"done"}


def test_a_setting_that_was_removed_since_is_named(toy: Toy) -> None:
    class Earlier(toy_pipeline.DoubleConfig):
        momentum: float = 0.9

    earlier = with_step(TOY, "work/double", config=Earlier)
    toy.execute()
    path = toy.path("work/double", "manifest.json")
    record = json.loads(path.read_text())
    record["settings"]["work"]["double"]["momentum"] = 0.9
    path.write_text(json.dumps(record))
    assert {place.state for place in toy.plan(earlier)} == {"done"}
    assert toy.plan()[2].changes == (("work.double.momentum", 0.9, "(not set)"),)


def test_a_raised_revision_is_a_change(finished: Toy) -> None:
    place = finished.plan(with_step(TOY, "work/double", revision=2))[2]
    assert (place.state, place.changes) == ("changed", (("revision", 1, 2),))


def test_until_stops_after_a_stage_and_only_runs_one_step(toy: Toy) -> None:
    assert [manifest.step for manifest in toy.execute(until="start")] == ["numbers", "start"]
    with pytest.raises(StateError, match="work/total reads 'model' from work/double, which is todo"):
        toy.execute(only="work/total")
    assert [manifest.step for manifest in toy.execute(only="work")] == ["work/double", "work/total"]


def test_an_unknown_step_is_refused_with_the_nearest(toy: Toy) -> None:
    with pytest.raises(RecipeError, match="did you mean 'work/double'"):
        toy.execute(only="work/dobule")


def test_a_torn_manifest_is_named_and_nothing_is_reused(finished: Toy) -> None:
    path = finished.path("numbers", "manifest.json")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateError, match=r"numbers of run demo is changed: .*0-numbers/manifest.json is torn or not ours"):
        finished.execute()
    finished.execute(redo=["numbers"])
    assert finished.tally()["numbers"] == 2


def test_a_manifest_that_cannot_be_read_is_named_and_nothing_is_reused(finished: Toy) -> None:
    path = finished.path("numbers", "manifest.json")
    path.unlink()
    path.mkdir()
    with pytest.raises(
        StateError, match=r"numbers of run demo is changed: .*0-numbers/manifest.json cannot be read: Is a directory"
    ):
        finished.execute()


def test_a_manifest_of_another_step_is_named(finished: Toy) -> None:
    shutil.copy(finished.path("numbers", "manifest.json"), finished.path("start", "manifest.json"))
    with pytest.raises(StateError, match="belongs to step 'numbers', not to 'start'"):
        finished.execute()


def test_a_torn_beginning_with_leftovers_stops_and_without_leftovers_starts_anew(toy: Toy) -> None:
    toy.set("work.double.fail=ours")
    with pytest.raises(Exception, match="not finite"):
        toy.execute()
    toy.set("work.double.fail=")
    begun = toy.path("work/double", "begun.json")
    begun.write_bytes(begun.read_bytes()[:50])
    with pytest.raises(StateError, match=r"begun\.json is torn or not ours"):
        toy.execute()
    for name in ("state.json", "metrics.jsonl"):
        toy.path("work/double", name).unlink()
    toy.execute()
    assert set(toy.states().values()) == {"done"}


def test_a_step_begun_with_other_settings_is_never_mixed(toy: Toy) -> None:
    toy.set("work.double.fail=ours")
    with pytest.raises(Exception, match="not finite"):
        toy.execute()
    assert toy.states()["work/double"] == "partial"
    toy.set("work.double.fail=", "work.double.factor=5")
    assert toy.states()["work/double"] == "changed"
    with pytest.raises(StateError, match=r"work\.double\.factor: 2 -> 5"):
        toy.execute()


def test_a_step_begun_with_other_settings_that_made_nothing_starts_anew(toy: Toy) -> None:
    toy.execute(until="start")
    stop = StopRequest()
    watch = Observer(on_step_begin=lambda step, attempt: stop.ask())
    with pytest.raises(Stopped):
        execute(toy.run, TOY, toy.recipe, observer=watch, loader=LOADER, stop=stop)
    for name in ("metrics.jsonl", "state.json"):
        toy.path("work/double", name).unlink(missing_ok=True)
    toy.set("work.double.factor=3")
    assert toy.states()["work/double"] == "todo"
    toy.execute()
    assert json.loads(toy.path("work/total", "answer.json").read_text()) == {"total": 2 + (ANSWER["total"] - 2) // 2 * 3}


def test_files_that_no_beginning_accounts_for_are_not_built_upon(toy: Toy) -> None:
    toy.path("work/double").mkdir(parents=True)
    toy.path("work/double", "state.json").write_text('{"step": 5, "sum": 1}')
    with pytest.raises(StateError, match=r"2-work/double holds 'state.json', which no beginning"):
        toy.execute()


def test_a_missing_or_altered_input_is_named_before_the_reader_starts(toy: Toy) -> None:
    toy.execute(until="start")
    values = toy.path("numbers", "values.json")
    content = values.read_text()
    values.write_text(content + " ")
    with pytest.raises(ArtifactError, match=rf"values\.json has {len(content) + 1} bytes; its manifest promises {len(content)}"):
        toy.execute()
    values.unlink()
    with pytest.raises(ArtifactError, match=r"values\.json is missing; its manifest promises"):
        toy.execute()
    values.write_text(content[:-2] + "9]")
    assert verify(toy.run, TOY, contents=False) == []
    [problem] = verify(toy.run, TOY)
    assert "values.json was altered" in problem
    with pytest.raises(ArtifactError, match=r"(?s)cannot start: .*values\.json was altered: SHA-256"):
        toy.execute()
    values.write_text(content)
    toy.execute()


def test_outputs_that_nobody_reads_again_may_be_deleted(finished: Toy) -> None:
    shutil.rmtree(finished.path("work/double", "model"))
    assert finished.execute() == []
    assert verify(finished.run, TOY) != []


def test_two_steps_never_start_from_different_base_models(toy: Toy, tmp_path: Path) -> None:
    again = replace(TOY.steps[1], name="again", folder="3-again")
    pipeline = replace(TOY, steps=(*TOY.steps, again))
    toy.pipeline = pipeline
    toy.execute(until="work")
    first = read_manifest(toy.path("start", "manifest.json")).inputs["base"].digest
    write_model(tmp_path / "base", b"other weights")
    with pytest.raises(ArtifactError) as caught:
        toy.execute(only="again")
    assert first[:16] in caught.value.problem
    assert "step start started from base model 'base'" in caught.value.problem
    assert "step again would start from 'base'" in caught.value.problem
    with pytest.raises(StateError, match=r"base\.digest"):
        toy.execute()


def test_a_pinned_base_model_must_have_its_digest(toy: Toy) -> None:
    toy.set("base.digest=0123456789abcdef")
    with pytest.raises(ArtifactError, match="the recipe pins 0123456789abcdef"):
        toy.execute()


def test_a_base_model_that_is_gone_does_not_undo_a_finished_run(finished: Toy, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "base")
    assert finished.execute() == []
    with pytest.raises(ArtifactError, match="no such folder"):
        finished.execute(redo=["start"])


def test_a_moved_runs_folder_goes_on(toy: Toy, tmp_path: Path) -> None:
    toy.execute(until="start")
    copy = fork(toy.run, "other", "work", TOY)
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "runs", tmp_path / "elsewhere" / "moved")
    root = tmp_path / "elsewhere" / "moved"
    for name in ("demo", copy.name):
        run = RunDir(root / name)
        assert len(execute(run, TOY, load_recipe(run.recipe_path, TOY), loader=LOADER)) == 2
    stored = [path.read_text(errors="replace") for path in root.rglob("*.json*") if path.is_file()]
    assert not any(str(tmp_path) in text for text in stored)


def test_a_fork_shares_what_does_not_come_from_the_step(finished: Toy) -> None:
    copy = Toy(fork(finished.run, "demo-2", "start", TOY), TOY, finished.tally_path)
    assert os.readlink(copy.path("numbers")) == "../demo/0-numbers"
    assert os.readlink(copy.path("work/double")) == "../../demo/2-work/double"
    assert copy.states() == {"numbers": "done", "start": "todo", "work/double": "done", "work/total": "todo"}
    copy.set("start.bonus=100")
    copy.execute()
    assert json.loads(copy.path("work/total", "answer.json").read_text()) == {"total": ANSWER["total"] + 100}
    assert json.loads(finished.path("work/total", "answer.json").read_text()) == ANSWER
    assert finished.execute() == []


def test_redo_in_a_fork_leaves_the_original_alone(finished: Toy) -> None:
    before = {path: path.read_bytes() for path in finished.run.root.rglob("*") if path.is_file()}
    copy = Toy(fork(finished.run, "demo-2", "work/total", TOY), TOY, finished.tally_path)
    copy.execute(redo=["numbers"])
    assert not copy.path("numbers").is_symlink()
    assert {path: path.read_bytes() for path in finished.run.root.rglob("*") if path.is_file()} == before


def test_a_fork_of_a_fork_links_to_the_original(finished: Toy) -> None:
    second = fork(finished.run, "second", "work/total", TOY)
    third = fork(second, "third", "work/total", TOY)
    assert os.readlink(third.step_dir(TOY.steps[0])) == "../demo/0-numbers"


def test_a_shared_step_is_not_discarded_under_its_fork(finished: Toy) -> None:
    fork(finished.run, "demo-2", "work/total", TOY)
    with pytest.raises(StateError, match="step numbers of run demo is shared with demo-2") as caught:
        finished.execute(redo=["numbers"])
    assert "r1pipe fork demo" in caught.value.hint
    assert max(finished.tally().values()) == 1


def test_a_fork_whose_original_is_gone_says_so(finished: Toy) -> None:
    copy = Toy(fork(finished.run, "demo-2", "work/total", TOY), TOY, finished.tally_path)
    shutil.rmtree(finished.run.root)
    with pytest.raises(StateError, match=r"shared from \.\./demo/0-numbers, which is gone"):
        copy.execute()
    copy.execute(redo=["numbers", "start"])
    assert set(copy.states().values()) == {"done"}


def test_a_taken_or_unfit_run_name_is_refused(toy: Toy) -> None:
    with pytest.raises(StateError, match="exists already"):
        fork(toy.run, "demo", "work", TOY)
    with pytest.raises(StateError, match="cannot be the name of a run"):
        fork(toy.run, "../out", "work", TOY)


def test_a_run_that_lost_its_recipe_says_so_instead_of_pointing_at_resume(finished: Toy) -> None:
    finished.run.recipe_path.unlink()
    with pytest.raises(StateError, match=r"holds finished steps but no recipe\.toml") as caught:
        new_run_path("demo", finished.run.root.parent)
    assert "resume" not in caught.value.hint

"""What a step's process may do to the runner, and what the runner makes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from core_helpers import LOADER, Toy, drive, make_toy, wait_for
from toy_pipeline import SHORT

from r1pipe import processes
from r1pipe.errors import StepFailed, Stopped
from r1pipe.files import is_disk_full
from r1pipe.launch import BEGUN, StopRequest, command, environment, last_lines
from r1pipe.manifest import read_begun
from r1pipe.observer import Observer
from r1pipe.recipe import Launch
from r1pipe.runner import execute

pytest_plugins = ("core_fixtures",)

SUM = sum(2 * (3 + step % 5) * step for step in range(1, 7))


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A run of two steps: numbers, then a loop with checkpoints."""
    return make_toy(tmp_path, monkeypatch, SHORT)


def run_all_fails(toy: Toy) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        toy.execute()
    return caught.value


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("ours", "step work/double failed: the loss is not finite at step 3"),
        ("theirs", "step work/double failed: ZeroDivisionError: something nobody expected\nlast lines of its log:\n"),
        ("exit", "step work/double failed: SystemExit: 0\n"),
        ("killed", "step work/double was killed by SIGKILL (out of memory?)"),
        ("full", "step work/double failed: "),
        ("lies", "step work/double said it was done, but output 'model' is not whole: runs/demo/2-work/double/model is empty"),
    ],
)
def test_a_failed_step_says_what_happened_stays_partial_and_goes_on(short: Toy, how: str, problem: str) -> None:
    short.set(f"work.double.fail={how}")
    error = run_all_fails(short)
    assert error.problem.startswith(problem)
    assert error.hint.endswith("log: runs/demo/2-work/double/logs/attempt-1.log\nr1pipe resume demo   goes on where it stopped")
    assert short.states()["work/double"] == "partial"
    assert json.loads(short.path("work/double", "state.json").read_text())["step"] == (6 if how == "lies" else 2)
    begun = short.path("work/double", "begun.json")
    begun.write_text(begun.read_text().replace(f'"fail": "{how}"', '"fail": ""'))  # as if what was wrong had been mended
    short.set("work.double.fail=")
    [manifest] = short.execute()
    assert (manifest.summary["sum"], manifest.attempts) == (SUM, 2)
    assert short.tally() == {"numbers": 1, "work/double": 2}
    lines = [json.loads(line)["step"] for line in short.path("work/double", "metrics.jsonl").read_text().split("\n") if line]
    assert lines == [1, 2, 3, 4, 5, 6]


def test_advice_of_a_step_can_be_typed_as_it_stands(short: Toy) -> None:
    from r1pipe.failures import failure
    from r1pipe.launch import Ended
    from r1pipe.manifest import to_json

    short.set("work.double.fail=ours")
    run_all_fails(short)
    step = short.pipeline.step("work/double")
    begun = read_begun(short.run.begun_path(step))
    assert begun is not None
    said = {"begun": begun.id, "type": "TrainingError", "problem": "other settings"}
    for hint, typed in (
        ("redo the step with `r1pipe run-all --redo STEP`", "redo the step with `r1pipe run-all --run demo --redo work/double`"),
        (
            "r1pipe fork RUN NEW --before STEP --set STEP.start_from=x",
            "r1pipe fork demo NEW --before work/double --set work/double.start_from=x",
        ),
        ("look with `r1pipe inspect STEP --part last`", "look with `r1pipe inspect work/double --run demo --part last`"),
    ):
        short.run.error_path(step).write_bytes(to_json({**said, "hint": hint}))
        assert failure(short.run, step, begun, Ended(1, 1.0, False)).hint.split("\n")[0] == typed


def test_a_full_disk_is_called_a_full_disk(short: Toy) -> None:
    short.set("work.double.fail=full")
    error = run_all_fails(short)
    assert "make room on the disk that holds runs/demo" in error.hint
    assert not short.path("work/double", "manifest.json").exists()


def test_an_error_of_a_library_on_a_full_disk_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 6836224 vs 6836112")
    assert not is_disk_full(error, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    assert is_disk_full(error, tmp_path)
    assert not is_disk_full(error, tmp_path / "nowhere")


def test_a_step_that_cannot_be_imported_shows_its_log(short: Toy) -> None:
    with pytest.raises(StepFailed, match=r"ended with exit code 1(.|\n)*No module named 'nowhere'"):
        execute(short.run, SHORT, short.recipe, loader="nowhere:load")
    assert len(short.execute()) == 2


def test_a_wish_to_stop_ends_the_step_at_a_safe_point_with_code_75(short: Toy) -> None:
    short.set("work.double.fail=wait")
    stop = StopRequest()
    watch = Observer(on_line=lambda step, line: stop.ask() if line["step"] == 2 else None, notice=short.notices.append)
    with pytest.raises(Stopped) as caught:
        execute(short.run, SHORT, short.recipe, observer=watch, loader=LOADER, stop=stop)
    assert caught.value.exit_code == 75
    assert "r1pipe resume demo" in caught.value.hint
    assert short.notices == ["stopping work/double at its next safe point; once more to stop now"]
    assert short.states() == {"numbers": "done", "work/double": "partial"}
    assert json.loads(short.path("work/double", "state.json").read_text())["step"] == 2
    Path("gate").touch()
    lines: list[int] = []
    execute(
        short.run, SHORT, short.recipe, observer=Observer(on_line=lambda step, line: lines.append(line["step"])), loader=LOADER
    )
    assert lines == [3, 4, 5, 6]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_runner_stops_cleanly_and_the_run_resumes(short: Toy, number: signal.Signals) -> None:
    short.set("work.double.fail=wait")
    runner = drive("short")
    wait_for(short.path("work/double", "waiting").exists)
    runner.send_signal(number)
    output, _ = runner.communicate(timeout=60)
    assert runner.returncode == 75
    assert "Stopped step work/double of run demo stopped at a safe point" in output
    assert not short.run.lock_path.exists()
    assert short.states()["work/double"] == "partial"


def test_a_second_signal_ends_a_step_that_does_not_listen(short: Toy) -> None:
    short.set("work.double.fail=deaf")
    runner = drive("short")
    wait_for(short.path("work/double", "deaf").exists)
    begun = read_begun(short.path("work/double", "begun.json"))
    assert begun is not None
    runner.send_signal(signal.SIGINT)
    wait_for(short.path("work/double", "stop").exists)
    time.sleep(0.3)
    assert runner.poll() is None
    runner.send_signal(signal.SIGINT)
    output, _ = runner.communicate(timeout=20)
    assert runner.returncode == 75
    assert "stopped at once" in output
    assert processes.marked(BEGUN, begun.id) == []


def test_nothing_that_a_step_started_outlives_it(short: Toy) -> None:
    short.set("work.double.fail=litter")
    short.execute()
    assert int(short.path("work/double", "child").read_text()) > 0
    assert not processes.started(int(short.path("work/double", "child").read_text()))


def test_a_process_left_behind_by_an_earlier_runner_is_ended_before_the_step_goes_on(short: Toy) -> None:
    short.set("work.double.fail=ours")
    run_all_fails(short)
    begun = read_begun(short.path("work/double", "begun.json"))
    assert begun is not None
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, BEGUN: begun.id})
    reaper = threading.Thread(target=left.wait)
    reaper.start()
    run_all_fails(short)
    reaper.join(timeout=5)
    assert left.returncode == -signal.SIGKILL
    assert short.notices == ["ended 1 process(es) that an earlier start of work/double had left behind"]


def test_a_result_of_an_earlier_beginning_is_not_taken(short: Toy) -> None:
    short.set("work.double.fail=ours")
    run_all_fails(short)
    forged = {"begun": "another", "summary": {}, "seconds": 1, "peak_memory_bytes": 1, "device": "cpu", "peak_device_bytes": 0}
    short.path("work/double", "result.json").write_text(json.dumps(forged))
    run_all_fails(short)
    assert short.tally()["work/double"] == 2


def test_the_worker_gets_its_settings_from_the_beginning_not_from_an_edited_recipe(short: Toy) -> None:
    def edit(step: object, attempt: int) -> None:
        short.run.recipe_path.write_text(short.run.recipe_path.read_text() + "\n[work.double]\nfactor = 9\n")

    short.execute(only="numbers")
    recipe = short.recipe
    [manifest] = execute(short.run, SHORT, recipe, observer=Observer(on_step_begin=edit), loader=LOADER)
    assert manifest.summary["sum"] == SUM
    assert manifest.settings["work"]["double"]["factor"] == 2
    assert short.states()["work/double"] == "changed"


def test_progress_and_metrics_reach_the_observer_in_order(short: Toy) -> None:
    seen: list[int] = []
    progress: list[int] = []
    watch = Observer(
        on_line=lambda step, line: seen.append(line["step"]), on_progress=lambda step, now: progress.append(now["done"])
    )
    execute(short.run, SHORT, short.recipe, observer=watch, loader=LOADER)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert progress[-1] == 6


def test_a_terminal_that_is_gone_does_not_end_the_run(short: Toy) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    watch = Observer(on_line=broken, on_step_begin=broken, on_progress=broken)
    assert len(execute(short.run, SHORT, short.recipe, observer=watch, loader=LOADER)) == 2


def test_a_defect_of_the_observer_is_not_hidden_and_leaves_a_run_that_goes_on(short: Toy) -> None:
    def defect(*_: object) -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        execute(short.run, SHORT, short.recipe, observer=Observer(on_line=defect), loader=LOADER)
    assert not short.run.lock_path.exists()
    short.execute()
    assert set(short.states().values()) == {"done"}


def test_several_processes_are_started_by_the_launcher_that_also_works_without_a_gpu() -> None:
    double = SHORT.steps[1]
    words = command(Path("runs/demo"), double, Launch(processes=2))
    assert words[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    assert "--multi_gpu" in words
    assert "--cpu" not in words
    assert words[words.index("--num_processes") + 1] == "2"
    assert words[-4:] == ["-m", "r1pipe.worker", "runs/demo", "work/double"]
    assert command(Path("runs/demo"), double, Launch()) == [sys.executable, "-m", "r1pipe.worker", "runs/demo", "work/double"]
    assert command(Path("runs/demo"), SHORT.steps[0], Launch(processes=2))[2] == "r1pipe.worker"
    own = command(Path("r"), double, Launch(processes=8, launcher_args=("--config_file", "fsdp.yaml")))
    assert own[3:7] == ["--config_file", "fsdp.yaml", "--num_processes", "8"]


def test_the_environment_is_quiet_offline_and_shares_out_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    variables = environment(Launch(threads=3, env={"HF_HUB_OFFLINE": "0", "MINE": "yes"}), {"R1PIPE_X": "y"})
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "3"
    assert (variables["HF_HUB_OFFLINE"], variables["TRANSFORMERS_OFFLINE"]) == ("0", "1")
    assert variables["HF_HUB_DISABLE_TELEMETRY"] == variables["PYTHONUNBUFFERED"] == "1"
    assert (variables["MINE"], variables["R1PIPE_X"]) == ("yes", "y")
    assert "HF_HUB_OFFLINE" not in environment(Launch(offline=False), {})
    cores = len(os.sched_getaffinity(0))
    assert environment(Launch(processes=2), {})["OMP_NUM_THREADS"] == str(max(1, cores // 2))


@pytest.mark.slow
def test_two_processes_hand_over_one_result_and_stop_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = make_toy(tmp_path, monkeypatch, SHORT, ["work.double.ranks=true", "launch.steps.work/double.processes=2"])
    [_, manifest] = toy.execute()
    assert manifest.summary == {"sum": SUM, "system": "", "world": 2}
    toy.set("work.double.fail=wait")
    stop = StopRequest()
    watch = Observer(on_line=lambda step, line: stop.ask() if line["step"] == 2 else None)
    with pytest.raises(Stopped, match="at a safe point"):
        execute(toy.run, SHORT, toy.recipe, observer=watch, loader=LOADER, stop=stop, redo=["work/double"])
    assert toy.states()["work/double"] == "partial"


@pytest.mark.slow
def test_the_first_process_that_fails_speaks_for_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = ["work.double.ranks=true", "work.double.fail=rank", "launch.steps.work/double.processes=2"]
    toy = make_toy(tmp_path, monkeypatch, SHORT, sets)
    error = run_all_fails(toy)
    assert error.problem == "step work/double failed: the second process ran dry"
    assert error.hint.startswith("give it data\n")
    begun = read_begun(toy.path("work/double", "begun.json"))
    assert begun is not None
    assert processes.marked(BEGUN, begun.id) == []


def test_of_a_progress_bar_in_a_log_only_its_last_state_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "attempt-1.log"
    log.write_text("begins\n\rloading: 0%\rloading: 50%\rloading: 100%\r\nends\r\n", newline="")
    assert last_lines(log) == ["begins", "loading: 100%", "ends"]

"""Two rounds of stage 4 on nano, over seeds: what the second round gains, and how well the reward models judge the policy's fresh
answers before and after they are trained on them.

    python benchmarks/iterative_rl.py --folder FOLDER [--seeds 1 2 3] [--rounds 2] [--optimizer keep] [--set key=value ...]

Each seed is an ordinary run in FOLDER/runs, made by `r1pipe run-all` and gone on with when it is there. With `--from RUN ...`
(runs whose first round is finished, one a seed) their finished steps are shared and only later rounds and the evaluation are
made.
Gains are those of the report: pass@1 on held-out problems and preference on held-out prompts, judged for both checkpoints by the
last reward models, paired by problem with 95% intervals; over seeds the mean with Student's interval. A last look, which belongs
to no step, has fresh answers of the last policy labelled and judged by the last reward models.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from common import R1PIPE, save


def r1pipe(folder: Path, *arguments: str) -> None:
    done = subprocess.run([*R1PIPE, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode:
        raise SystemExit(f"r1pipe {' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def made(folder: Path, seed: int, given: Path | None, sets: Sequence[str]) -> Path:
    """The finished run of a seed, or of a run that is given."""
    name = f"{given.name}-rounds" if given else f"rounds-{seed}"
    run = given.parent / name if given else folder / "runs" / name  # a fork lies beside what it shares
    words = [word for one in sets for word in ("--set", one)]
    if (run / "recipe.toml").is_file():
        r1pipe(folder, "resume", str(run))
    elif given:
        r1pipe(folder, "fork", str(given), name, "--before", "mixed-rl/fresh-2", *words)
        r1pipe(folder, "resume", str(run))
    else:
        r1pipe(folder, "run-all", "--recipe", "nano", "--run", name, "--set", f"seed={seed}", *words)
    return run


def last_look(run: Path, rounds: int, samples: int) -> dict[str, Any]:
    """Accuracy of the last reward models on labelled fresh answers of the last policy, all of them unseen."""
    import tempfile
    from dataclasses import replace

    from r1pipe.data.tables import read_table
    from r1pipe.opening import open_run
    from r1pipe.recipe import Launch
    from r1pipe.stage import StepContext
    from r1pipe.stages.fresh import fresh_labels, fresh_pairs
    from r1pipe.stages.iterating import sample_fresh
    from r1pipe.stages.mixed_rl import judged_rows
    from r1pipe.train.reward_model import measure
    from r1pipe.train.scorer import loaded

    opened = open_run(str(run))
    step = opened.pipeline.step(f"mixed-rl/fresh-{rounds}")
    steps = {one.name: one for one in opened.pipeline.steps}
    end = f"-{rounds}" if rounds > 1 else ""
    config = opened.recipe.configs[step.name].model_copy(update={"samples": samples} if samples else {})
    inputs = {name: opened.run.input_path(source, steps, None) for name, source in step.reads.items()}
    inputs["policy"] = opened.run.output_path(steps[f"mixed-rl/train{end}"], "model")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        shared = {name: opened.recipe.shared[name] for name in step.shares}
        after = replace(step, name=f"mixed-rl/fresh-{rounds + 1}")
        context = StepContext(after, config, shared, Launch(threads=1), inputs, {}, Path(scratch), opened.recipe.seed)
        sample_fresh(context)
        attempts = list(read_table(Path(scratch) / "attempts"))
        margin = opened.recipe.configs[f"mixed-rl/reward-models-{rounds}"].margin  # type: ignore[attr-defined]
        for kind, rows_of in (("helpfulness", fresh_pairs), ("safety", fresh_labels)):
            rows, counts = rows_of(attempts, margin)
            folder = opened.run.output_path(steps[f"mixed-rl/reward-models-{rounds}"], kind)
            found[kind] = {"answers": counts}
            if rows:
                model, tokenizer = loaded(str(folder))
                judged = judged_rows(context, kind, folder, rows)  # type: ignore[arg-type]
                numbers = measure(model, tokenizer.pad_token_id, judged, kind == "helpfulness")
                found[kind] |= {name: numbers[name] for name in ("held_out", "accuracy", "accuracy_interval")}
    return found


def numbers(run: Path, rounds: int, samples: int) -> dict[str, Any]:
    """What a finished run says of its rounds."""
    from r1pipe.opening import open_run
    from r1pipe.report.evaluation import read_evaluation
    from r1pipe.report.rounds import gains

    opened = open_run(str(run))
    evaluation = read_evaluation(opened)
    if evaluation is None:
        raise SystemExit(f"{run} has no evaluation")
    found: dict[str, Any] = {"run": run.name, "seed": opened.recipe.seed, "rounds": {}}
    for number, one, right, liked in gains(evaluation):
        found["rounds"][str(number)] = {
            "checkpoint": one.name, "pass_at_1": one.pass_at_1[0] if one.pass_at_1 else None,
            "gain": asdict(right) if right else None, "preference_gain": asdict(liked) if liked else None,
        }  # fmt: skip
    for number in range(2, rounds + 1):
        path = opened.run.manifest_path(opened.pipeline.step(f"mixed-rl/reward-models-{number}"))
        summary = json.loads(path.read_text())["summary"]
        kept = ("answers", "fresh", "old", "replayed", "fresh_before", "fresh_after", "old_before", "old_after", "taken_over")
        found["rounds"][str(number)]["reward_models"] = {
            kind: {name: summary[kind][name] for name in kept if name in summary[kind]} for kind in ("helpfulness", "safety")
        }
    found["after_the_last_round"] = last_look(run, rounds, samples)
    return found


def over_seeds(values: Sequence[float]) -> dict[str, float | None]:
    """Mean over seeds with its 95% interval (Student's t); no interval for one seed."""
    from r1pipe.intervals import student_quantile

    middle = fmean(values)
    if len(values) < 2:
        return {"mean": middle, "low": None, "high": None}
    half = student_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return {"mean": middle, "low": middle - half, "high": middle + half}


def tell(found: dict[str, Any]) -> None:
    """A few lines for a person."""
    print(f"{found['run']} (seed {found['seed']})")
    for number, one in found["rounds"].items():
        for what in ("gain", "preference_gain"):
            if gain := one[what]:
                words = "pass@1" if what == "gain" else "preference"
                print(f"  round {number}: {words} {gain['difference']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]")
        for kind, model in one.get("reward_models", {}).items():
            if "fresh_after" in model:
                before, after = model["fresh_before"], model["fresh_after"]
                print(
                    f"  reward models before round {number}: {kind} on {after['held_out']} held-out fresh rows "
                    f"{before['accuracy']:.3f} -> {after['accuracy']:.3f}, on old ones {model['old_before']['accuracy']:.3f} -> "
                    f"{model['old_after']['accuracy']:.3f} ({model['fresh']} fresh, {model['replayed']} of {model['old']} old)"
                )
            else:
                print(f"  reward models before round {number}: {kind} taken over: {model['taken_over']}")
    for kind, model in found["after_the_last_round"].items():
        print(f"  after the last round: {kind} on {model.get('held_out', 0)} fresh rows {model.get('accuracy')}")


def main() -> None:
    """Make, read, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the runs lie, or are made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--from", dest="given", type=Path, nargs="+", metavar="RUN", help="runs whose first round is finished")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--optimizer", choices=("reset", "keep"), default="reset")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--samples", type=int, default=0, help="answers a prompt in the last look; 0: as between rounds")
    parser.add_argument("--name", default="iterative_rl", help="of the file of results")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rounds = [f"mixed-rl.rounds.count={arguments.rounds}", f"mixed-rl.rounds.optimizer_state={arguments.optimizer}"]
    sets = [*rounds, *arguments.sets]
    every: list[tuple[int, Path | None]] = [(0, run.resolve()) for run in arguments.given or []]
    found: list[dict[str, Any]] = []
    for seed, given in every or [(seed, None) for seed in arguments.seeds]:
        run = made(arguments.folder.resolve(), seed, given, sets)
        found.append(numbers(run, arguments.rounds, arguments.samples))
        tell(found[-1])
        summary: dict[str, Any] = {}
        for number in found[0]["rounds"]:
            for what in ("gain", "preference_gain"):
                gains = [one["rounds"][number][what]["difference"] for one in found if one["rounds"][number][what]]
                if gains:
                    summary[f"round {number}: {what}"] = over_seeds(gains)
        save(arguments.name, {"sets": sets, "runs": found, "over_seeds": summary})
    for what, line in summary.items():
        print(f"over {len(found)} seeds, {what}: {json.dumps(line)}")


if __name__ == "__main__":
    main()

"""What stage 4 does to preference and to accuracy, over finished runs of several seeds.

    python benchmarks/preference_seeds.py runs/nano-1 runs/nano-2 runs/nano-3

Reads what the runs recorded and nothing else. For each run: the preference score on held-out prompts before stage 4 (Dev3) and
after it (R1), judged by the run's own reward models on the same prompts; the same from the start to the switch, and from there to
the end, as the looks on the way have it; and in training the mean preference scores of the rollouts.
Over the runs: mean change with its 95% interval by Student's t over seeds. Goals: the change's interval excludes zero, that
before the switch does not lie above it; before the switch
no preference reward is given; pass@1 after stage 4 at most 0.02 below before; language and format at least 0.97.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from common import save

from r1pipe.data.tables import scores_of
from r1pipe.intervals import student_quantile
from r1pipe.metrics import read_metrics
from r1pipe.train.hacking import told

JUDGES = ("helpfulness", "safety")
MOST_LOST, LEAST = 0.02, 0.97


def interval(values: list[float]) -> dict[str, float]:
    """Mean of one number a seed, and its 95% interval."""
    centre = fmean(values)
    if len(values) < 2:
        return {"mean": centre, "low": -math.inf, "high": math.inf}
    half = student_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return {"mean": centre, "low": centre - half, "high": centre + half}


def changes_by_prompt(run: Path) -> dict[str, float]:
    """Mean change of the preference score from Dev3 to R1 over prompts, by judge and for both."""
    folders = [path for path in run.glob("*-evaluate") if (path / "results.json").is_file()]
    if not folders:
        raise SystemExit(f"{run} has no finished evaluation")
    names = list(json.loads((folders[0] / "results.json").read_text())["checkpoints"])
    parts = sorted((folders[0] / "attempts").glob("part-*.parquet"))
    means: dict[str, dict[str, dict[str, float]]] = {}
    for name, part in zip(names, parts, strict=True):
        if name in ("dev3", "r1"):
            means[name] = preference_by_prompt(part)
    found = {}
    for judge in JUDGES:
        before, after = (means[name].get(judge, {}) for name in ("dev3", "r1"))
        if before.keys() & after.keys():
            found[judge] = fmean(after[prompt] - before[prompt] for prompt in before.keys() & after.keys())
    before, after = (
        {key: value for judge in JUDGES for key, value in means[name].get(judge, {}).items()} for name in ("dev3", "r1")
    )
    found["both"] = fmean(after[prompt] - before[prompt] for prompt in before.keys() & after.keys())
    return found


def preference_by_prompt(part: Path) -> dict[str, dict[str, float]]:
    """Judge -> prompt -> mean score of its attempts."""
    from r1pipe.data.tables import read_part

    found: dict[str, dict[str, list[float]]] = {judge: {} for judge in JUDGES}
    for row in read_part(part):
        for judge in JUDGES:
            score = scores_of(row).get(judge)
            if score is not None and score.value is not None:
                found[judge].setdefault(row["id"], []).append(score.value)
    return {judge: {prompt: fmean(values) for prompt, values in prompts.items()} for judge, prompts in found.items()}


def numbers(run: Path) -> dict[str, Any]:
    """Everything that is read of one run."""
    (folder,) = (path for path in run.glob("*-mixed-rl/train") if (path / "manifest.json").is_file())
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    switch = summary["preference_from_step"]
    lines = read_metrics(folder / "metrics.jsonl")
    rollouts = [line for line in lines if line["kind"] == "rollout"]
    given = {line["step"]: [line["rewards"].get(judge) for judge in JUDGES] for line in rollouts}
    early = [step for step, values in given.items() if step < switch and any(value is not None for value in values)]
    late = [step for step, values in given.items() if step >= switch and all(value is None for value in values)]
    results = json.loads(next(run.glob("*-evaluate/results.json")).read_text())["checkpoints"]
    watched = told(lines)
    models = json.loads(next(run.glob("*-mixed-rl/reward-models/manifest.json")).read_text())["summary"]
    return {
        "run": run.name,
        "switch": switch,
        "preference_before_switch": early,
        "no_preference_after_switch": late,
        "change": changes_by_prompt(run),
        "change_after_switch": watched.get("preference_change"),
        "change_before_switch": watched.get("preference_change_before"),
        "watch": {key: watched.get(key) for key in ("accuracy_change", "sign_at", "seconds")} if watched else None,
        "pass_at_1": {name: results[name]["pass_at_1"] for name in ("dev3", "r1")},
        "format": results["r1"]["format"],
        "language": results["r1"]["language"],
        "reward_models": {judge: models[judge]["accuracy"] for judge in JUDGES},
    }


def main() -> None:
    """Read, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs, one a seed")
    chosen = parser.parse_args()
    found = [numbers(run) for run in chosen.runs]
    for one in found:
        lost = one["pass_at_1"]["r1"] - one["pass_at_1"]["dev3"]
        change = {name: f"{value:+.3f}" for name, value in one["change"].items()}
        print(
            f"{one['run']}: preference from Dev3 to R1 {change}, in looks before the switch {one['change_before_switch']}, after "
            f"it {one['change_after_switch']}; pass@1 {lost:+.3f}, format {one['format']:.3f}, language {one['language']:.3f}; "
            f"accuracy of the reward models {one['reward_models']}"
        )
    whole = {
        name: interval([one["change"][name] for one in found])
        for name in ("both", *JUDGES)
        if all(name in one["change"] for one in found)
    }
    for name in ("before", "after"):
        watched = [one[f"change_{name}_switch"] for one in found if one[f"change_{name}_switch"] is not None]
        if watched:
            whole[f"{name} the switch"] = interval(watched)
    for name, over in whole.items():
        print(f"change of preference, {name}: {over['mean']:+.3f} (95% {over['low']:+.3f} to {over['high']:+.3f})")
    lost = [one["pass_at_1"]["r1"] - one["pass_at_1"]["dev3"] for one in found]
    goals = {
        "the change's interval excludes zero": whole["both"]["low"] > 0,
        **({"no rise before the switch": whole["before the switch"]["low"] <= 0} if "before the switch" in whole else {}),
        **(
            {"the rise after the switch excludes zero": whole["after the switch"]["low"] > 0}
            if "after the switch" in whole
            else {}
        ),
        "no preference reward before the switch, one in every rollout after it": not any(
            one["preference_before_switch"] or one["no_preference_after_switch"] for one in found
        ),
        f"pass@1 at most {MOST_LOST} lower in every run": min(lost) >= -MOST_LOST,
        f"format and language at least {LEAST} in every run": min(min(one["format"], one["language"]) for one in found) >= LEAST,
    }
    for goal, holds in goals.items():
        print(f"{'holds' if holds else 'does not hold'}: {goal}")
    print(f"pass@1 over seeds: {fmean(lost):+.3f}")
    save("preference_seeds", {"runs": found, "over_seeds": whole, "goals": goals})


if __name__ == "__main__":
    main()

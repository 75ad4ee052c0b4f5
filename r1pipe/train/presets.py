"""Named choices of the GRPO objective, each over options that TRL has, each with its source.

A preset fills in what a recipe leaves out and nothing else: what the recipe says wins, and the resolved settings name every
value. Learning rates, sizes and lengths are no part of a preset; they belong to a model and a machine.

paper: DeepSeek-R1 (arXiv 2501.12948v2, 2.1 and 3.2.1; the objective is DeepSeekMath's, 2402.03300, Eq. 3 and 4). Mean over each
    answer's tokens, group mean and deviation, KL 0.001 by k3 in the loss, clip range 10, reference replaced every 400 steps.
dr-grpo: Liu et al. 2025 (2503.20783, 3.1 and 3.2). The mean over an answer's tokens makes long wrong answers cheap and the
    division by the group's deviation favours questions that are nearly always right or wrong: both go; the sum over tokens is
    divided by the length limit. Clip 0.2, no KL term.
dapo: Yu et al. 2025 (2503.14476, 3.1 to 3.4). A higher upper clip range (0.2, 0.28), mean over all tokens, groups without
    signal left out, answers cut off at the limit masked, a penalty over the last fifth before the limit, no KL term. The paper
    samples again until a rollout is full of groups with signal; here they are left out and the rest weighs more, because a
    rollout of unknown length could not be resumed at a known prompt.
gspo: Zheng et al. 2025 (2507.18071, section 4 and 5.1). One ratio an answer, the geometric mean of its tokens' ratios, clipped
    at 3e-4 and 4e-4; no KL term.
modern: what later comparisons agree on. Upper clip range and token mean as DAPO; group mean with the deviation of the whole
    batch (Liu et al. 2025, "Tricks or Traps", 2508.08221), never below a floor; groups without signal left out (ScaleRL,
    2510.13786); the penalty before the limit instead of a mask, which helps at short limits only (2508.08221).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["paper", "dr-grpo", "dapo", "gspo", "modern"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "loss": "grpo", "ratio": "token", "clip": 10.0, "clip_high": None, "kl": 0.001, "refresh_reference": 400,
        "advantage_scale": "group", "advantage_floor": 0.0, "flat_groups": "keep", "truncated": "score", "overlong_share": 0.0,
    },
    "dr-grpo": {
        "loss": "dr_grpo", "ratio": "token", "clip": 0.2, "clip_high": None, "kl": 0.0, "refresh_reference": 0,
        "advantage_scale": "none", "advantage_floor": 0.0, "flat_groups": "keep", "truncated": "score", "overlong_share": 0.0,
    },
    "dapo": {
        "loss": "dapo", "ratio": "token", "clip": 0.2, "clip_high": 0.28, "kl": 0.0, "refresh_reference": 0,
        "advantage_scale": "group", "advantage_floor": 0.0, "flat_groups": "leave-out", "truncated": "mask",
        "overlong_share": 0.2,
    },
    "gspo": {
        "loss": "grpo", "ratio": "sequence", "clip": 3e-4, "clip_high": 4e-4, "kl": 0.0, "refresh_reference": 0,
        "advantage_scale": "group", "advantage_floor": 0.0, "flat_groups": "keep", "truncated": "score", "overlong_share": 0.0,
    },
    "modern": {
        "loss": "dapo", "ratio": "token", "clip": 0.2, "clip_high": 0.28, "kl": 0.0, "refresh_reference": 0,
        "advantage_scale": "batch", "advantage_floor": 0.1, "flat_groups": "leave-out", "truncated": "score",
        "overlong_share": 0.2,
    },
}  # fmt: skip
"""Preset -> every setting of the objective."""

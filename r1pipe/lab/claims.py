"""The claims, as data: what the paper says, which runs stand for it here, what is measured, and the bound that decides.

Everything that decides is written here and goes into the claim's folder before the first run; a claim that was begun with one
definition is not finished with another. Step counts are shrunk so that a claim takes about a quarter of an hour on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from r1pipe.lab.rules import Rule


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the runs that a claim compares, once for each seed.

    Attributes:
        name: its runs are called NAME-SEED.
        recipe: name of a packaged recipe; settings: what is set in it, as `--set` does.
        fork_of: an arm whose finished steps it shares, up to `before`: the first stage or step that it makes itself. Its
            settings are those of that arm, and then its own.
    """

    name: str
    recipe: str = ""
    settings: tuple[str, ...] = ()
    fork_of: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint of an arm."""

    arm: str
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is measured.

    Attributes:
        says: what the claim says of it.
        quantity: a key of `r1pipe.lab.measure`; by problem, or one number of the rollouts of the step that makes `second`.
        first, second: second less first is the difference; the same place for a quantity of the rollouts.
        rule: decides; None for what is only reported.
    """

    says: str
    quantity: str
    first: Place
    second: Place
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """How checkpoints are asked: the held-out problems of their own run, as the recipe nano evaluates.

    Attributes:
        general: general questions besides, scored by the run's reward models.
    """

    problems: int = 192
    samples: int = 2
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 128
    general: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper and how it is tested.

    Attributes:
        source: where the paper makes it.
        departs: how the test here is not the paper's.
        minutes: about how long it takes on two idle cores; runs that claims share are made once.
        measure: None takes the run's own evaluation.
    """

    name: str
    title: str
    source: str
    departs: str
    checks: tuple[Check, ...]
    minutes: int
    measure: Measure | None = Measure()
    seeds: tuple[int, ...] = (1, 2, 3)

    @property
    def places(self) -> tuple[Place, ...]:
        """Every checkpoint that is measured, once."""
        return tuple(dict.fromkeys(place for check in self.checks for place in (check.first, check.second)))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms whose checkpoints are measured."""
        return tuple(dict.fromkeys(place.arm for place in self.places))


SMALL = ("prepare.problems.count=2000", "prepare.evaluation.count=192", "reasoning-rl.steps=24",
         "reasoning-rl.questions_per_step=8", "rejection-sft.sample.problems=512")  # fmt: skip
WHOLE = ("zero.train.steps=32", "zero.train.questions_per_step=8", "zero.sample.problems=512")
PREFERENCE = ("reasoning-rl.steps=8", "rejection-sft.sample.problems=256", "mixed-rl.train.steps=20",
              "mixed-rl.train.questions_per_step=8", "mixed-rl.train.preference_from_step=16")  # fmt: skip
STALE = ("reasoning-rl.steps=32", "reasoning-rl.minibatches=4")

ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("whole", "nano-full", (*SMALL, *WHOLE)),
        Arm("whole-language", settings=('zero.train.language={ name = "language", weight = 1.0 }',),
            fork_of="whole", before="zero/train"),
        Arm("chain", "nano", SMALL),
        Arm("clip-wide", settings=(*STALE, "reasoning-rl.clip=10.0"), fork_of="chain", before="reasoning-rl"),
        Arm("clip-narrow", settings=(*STALE, "reasoning-rl.clip=0.2"), fork_of="chain", before="reasoning-rl"),
        Arm("preference-late", "nano", (*SMALL, *PREFERENCE)),
        Arm("preference-early", settings=("mixed-rl.train.preference_from_step=0",),
            fork_of="preference-late", before="mixed-rl/train"),
        Arm("full", "nano-full"),
        Arm("stages", "nano"),
    )
}  # fmt: skip
"""Arms by name."""

ZERO, DEV1, DEV2, DEV3 = (Place("whole", name) for name in ("Zero", "Dev1", "Dev2", "Dev3"))
BEFORE, AFTER, RESET = (Place("chain", name) for name in ("Dev1", "Dev2", "Dev3"))
FREE, HELD = ZERO, Place("whole-language", "Zero")
WIDE, NARROW = Place("clip-wide", "Dev2"), Place("clip-narrow", "Dev2")
LATE, EARLY = Place("preference-late", "R1"), Place("preference-early", "R1")
FULL_ZERO, FULL_DEV1, FULL_DEV2, FULL_DEV3, FULL_R1 = (Place("full", name) for name in ("Zero", "Dev1", "Dev2", "Dev3", "R1"))
BASE = Place("whole", "Base")
NANO_DEV1, NANO_DEV2, NANO_DEV3, NANO_R1 = (Place("stages", name) for name in ("Dev1", "Dev2", "Dev3", "R1"))

LOSES_LITTLE = Rule(more_than=-0.03)
HIGHER, LOWER = Rule(more_than=0.0), Rule(less_than=0.0)

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            "growth", "Accuracy and length grow together without a length reward", "R1 v2, 2.3 and Fig. 1",
            "The paper's length grows from hundreds to thousands of tokens over 10,400 steps; here there are 32 steps and "
            "problems of one to three operations.",
            (
                Check("Zero answers more right than the base", "pass@1", BASE, ZERO, HIGHER),
                Check("Zero answers longer than the base", "tokens", BASE, ZERO, HIGHER),
                Check("accuracy and length rise together over the rollouts", "rollouts: accuracy with tokens", ZERO, ZERO,
                      HIGHER),
                Check("characters of thinking, last third of the rollouts less the first", "rollouts: growth of thinking",
                      ZERO, ZERO),
            ), minutes=10,
        ),
        Claim(
            "cold-start", "Cold start dips in accuracy and reasoning RL wins it back", "R1 v2, Table 3 and 3.2.1",
            "The traces come from R1-Zero and nobody rewrites them.",
            (
                Check("Dev1 answers fewer right than Zero", "pass@1", ZERO, DEV1, LOWER),
                Check("Dev2 answers more right than Dev1", "pass@1", DEV1, DEV2, HIGHER),
                Check("Dev2 loses at most 0.03 to Zero", "pass@1", ZERO, DEV2, LOSES_LITTLE),
                Check("format, Dev1 less Zero", "format", ZERO, DEV1),
                Check("language, Dev1 less Zero", "language", ZERO, DEV1),
            ), minutes=14,
        ),
        Claim(
            "language", "The language reward makes thinking consistent and costs little accuracy", "R1 v2, B.6",
            "The paper's ablation is on a distilled model of 7 billion parameters; here it is R1-Zero from the embedded base.",
            (
                Check("thinking keeps more to the question's language with the reward", "language", FREE, HELD, HIGHER),
                Check("accuracy falls by at most 0.05", "pass@1", FREE, HELD, Rule(more_than=-0.05)),
                Check("tokens, with less without", "tokens", FREE, HELD),
            ), minutes=14,
        ),
        Claim(
            "reset", "Stage 3 starts again from the clean base and keeps the skill", "R1 v1, 2.3.3; v2, B.4.2 and Table 3",
            "The selection is some hundred traces and no general data of the paper's kinds.",
            (
                Check("Dev3 loses at most 0.03 to Dev2", "pass@1", AFTER, RESET, LOSES_LITTLE),
                Check("format, Dev3 less Dev2", "format", AFTER, RESET),
                Check("language, Dev3 less Dev2", "language", AFTER, RESET),
            ), minutes=11,
        ),
        Claim(
            "majority", "RL raises Maj@K and not Pass@K at large K", "DeepSeekMath 5.2.2 and Fig. 7; Yue et al. 2025",
            "K goes to 32; sampled at temperature 0.7 as in DeepSeekMath, whose model before RL was instruction-tuned.",
            (
                Check("Maj@32 rises", "maj@32", BEFORE, AFTER, HIGHER),
                Check("Pass@32 rises by less than 0.03", "pass@32", BEFORE, AFTER, Rule(less_than=0.03)),
                Check("pass@1, after less before", "pass@1", BEFORE, AFTER),
            ), minutes=13, measure=Measure(problems=64, samples=32, temperature=0.7),
        ),
        Claim(
            "distillation", "Learning from a stronger model's traces beats RL on the smaller model", "R1 v1, 4.1; v2, Table 15",
            "Teacher (Dev2) and student are of one size here, because the package holds one base model: what is compared is "
            "learning from selected traces with RL from the same base.",
            (
                Check("Dev3, the base taught by Dev2's traces, answers more right than Zero, the base after RL", "pass@1",
                      ZERO, DEV3, HIGHER),
                Check("tokens, taught less RL", "tokens", ZERO, DEV3),
            ), minutes=15,
        ),
        Claim(
            "clip", "A clip range of 10 learns more than one of 0.2", "R1 v2, 3.2.1",
            "Four minibatches a rollout instead of sixteen, so answers are at most three updates old.",
            (
                Check("Dev2 answers more right with 10 than with 0.2", "pass@1", NARROW, WIDE, HIGHER),
                Check("language, with 10 less with 0.2", "language", NARROW, WIDE),
            ), minutes=13,
        ),
        Claim(
            "preference", "Too long a training on preference rewards is hacked: the reward rises and the skill falls",
            "R1 v2, 3.2.2 and Fig. 6",
            "All 20 steps with preference rewards against the last 4 of 20; the skill is arithmetic, not competition "
            "programming.",
            (
                Check("the reward models score higher", "preference", LATE, EARLY, HIGHER),
                Check("fewer answers are right", "pass@1", LATE, EARLY, LOWER),
                Check("tokens, long less short", "tokens", LATE, EARLY),
            ), minutes=15, measure=Measure(general=48),
        ),
        Claim(
            "shape", "The checkpoints stand to each other as in the paper's table", "R1 v2, Table 3",
            "Problems of one to three operations instead of ten benchmarks; preference is what the run's own reward models say.",
            (
                Check("Dev1 answers fewer right than Zero", "pass@1", FULL_ZERO, FULL_DEV1, LOWER),
                Check("Dev1 is better formed than Zero", "format", FULL_ZERO, FULL_DEV1, HIGHER),
                Check("Dev1 keeps more to the question's language than Zero", "language", FULL_ZERO, FULL_DEV1, HIGHER),
                Check("Dev2 answers more right than Dev1", "pass@1", FULL_DEV1, FULL_DEV2, HIGHER),
                Check("Dev3, from the clean base, loses at most 0.03 to Dev2", "pass@1", FULL_DEV2, FULL_DEV3, LOSES_LITTLE),
                Check("R1 loses at most 0.03 to Dev3", "pass@1", FULL_DEV3, FULL_R1, LOSES_LITTLE),
                Check("R1 is preferred to Dev3 by half a standard deviation", "preference", FULL_DEV3, FULL_R1,
                      Rule(more_than=0.5)),
            ), minutes=65, measure=None,
        ),
        Claim(
            "stages", "The four stages stand to each other as in the paper's table", "R1 v2, Table 3",
            "As shape, with the recipe nano: cold-start traces are given and there is no R1-Zero.",
            (
                Check("Dev2 answers more right than Dev1", "pass@1", NANO_DEV1, NANO_DEV2, HIGHER),
                Check("Dev3, from the clean base, loses at most 0.03 to Dev2", "pass@1", NANO_DEV2, NANO_DEV3, LOSES_LITTLE),
                Check("R1 loses at most 0.03 to Dev3", "pass@1", NANO_DEV3, NANO_R1, LOSES_LITTLE),
                Check("R1 is preferred to Dev3 by half a standard deviation", "preference", NANO_DEV3, NANO_R1,
                      Rule(more_than=0.5)),
            ), minutes=35, measure=None,
        ),
    )
}  # fmt: skip
"""Claims by name, in the order in which they are listed."""

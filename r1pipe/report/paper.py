"""What the paper printed for its own checkpoints (v2, Table 3): another model, other problems. Never a yardstick for a run's
numbers; only the shape from one checkpoint to the next can be compared."""

from __future__ import annotations

CHECKPOINTS = ("Zero", "Dev1", "Dev2", "Dev3", "R1")

TABLE = {
    "AIME 2024, pass@1": (77.9, 59.0, 74.0, 78.1, 79.8),
    "MATH-500, pass@1": (95.9, 94.2, 95.9, 95.4, 97.3),
    "CNMO 2024, pass@1": (88.1, 58.0, 73.9, 77.3, 78.8),
    "GPQA Diamond, pass@1": (75.8, 66.1, 70.7, 71.2, 71.5),
    "LiveCodeBench, pass@1": (50.0, 57.5, 63.5, 64.6, 65.9),
    "Codeforces, rating": (1444, 1534, 1687, 1746, 2029),
    "MMLU, exact match": (88.8, 89.1, 91.2, 91.0, 90.8),
    "IF-Eval, prompt strict": (46.6, 71.7, 72.0, 78.1, 83.3),
    "AlpacaEval 2.0, LC win rate": (24.7, 50.1, 55.8, 62.1, 87.6),
    "ArenaHard, GPT-4-1106": (53.6, 77.0, 73.2, 75.6, 92.3),
}
"""Benchmark -> the number of each checkpoint, in the order of `CHECKPOINTS`."""

SAMPLING = (
    "Sampled at temperature 0.6 and top-p 0.95, at most 32,768 tokens; k = 64 samples for AIME and GPQA, 16 for MATH-500 and "
    "Codeforces, 8 for LiveCodeBench (D.1)."
)

SHAPE = (
    "The shape to look for: Dev1 gains format and loses accuracy against Zero, Dev2 wins the accuracy back, Dev3 keeps it from "
    "the clean base, and R1 gains mostly in preference."
)

"""Whether the sandbox tells right code from wrong: every reference solution, and one mutation of each, against its tests.

    python benchmarks/code_mutations.py --humaneval humaneval.jsonl --mbpp mbpp_sanitized.jsonl

Every reference solution must pass. A mutation changes one constant, arithmetic operator, comparison or return, the last such
place in the program. Where a bare `python -I` passes the mutated program too, the tests cannot tell and the mutation does not
count; of the others at least 95% must fail in the sandbox.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from pathlib import Path
from typing import Any

from common import save
from sandbox_speed import bare, read

from r1pipe.rewards.code import build_job
from r1pipe.rewards.sandbox import Limits, SandboxServer

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def places(tree: ast.AST) -> list[tuple[str, ast.AST]]:
    """Where a program can be mutated, in order; not in its documentation."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: list[tuple[str, ast.AST]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in texts and isinstance(node.value, int | float | str):
            found.append(("constant", node))
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            found.append(("operator", node))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            found.append(("comparison", node))
        elif isinstance(node, ast.Return) and node.value is not None:
            found.append(("return", node))
    return found


def mutated(program: str, number: int) -> tuple[str, str]:
    """(kind, program) with one place changed; the kinds take turns as far as a program has them."""
    tree = ast.parse(program)
    found = places(tree)
    kinds = ("constant", "operator", "comparison", "return")
    wanted = [kinds[(number + turn) % len(kinds)] for turn in range(len(kinds))]
    kind, node = next((entry for kind in wanted for entry in reversed(found) if entry[0] == kind), ("", tree))
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + ("x" if isinstance(node.value, str) else 1)
    elif isinstance(node, ast.BinOp):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[assignment]
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)
    return kind, ast.unparse(tree)


def main() -> None:
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--humaneval", default="")
    parser.add_argument("--mbpp", default="")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of each file")
    arguments = parser.parse_args()
    rows: list[tuple[dict[str, Any], str]] = []
    if arguments.humaneval:
        rows += [(row, row["prompt"] + row["canonical_solution"]) for row in read(arguments.humaneval)[: arguments.rows]]
    if arguments.mbpp:
        rows += [({"tests": row["test_list"], **row}, row["code"]) for row in read(arguments.mbpp)[: arguments.rows]]
    server = SandboxServer("bubblewrap", Limits())
    outcomes: Counter[str] = Counter()
    by_kind: dict[str, Counter[str]] = {}
    refused, let_through = [], []
    for number, (check, program) in enumerate(rows):
        name = str(check["task_id"])
        if (result := server.run(build_job(check, program))).outcome != "passed":
            refused.append(f"{name}: {result.outcome}")
        kind, changed = mutated(program, number)
        if not kind:
            continue
        outcome = server.run(build_job(check, changed)).outcome
        tally = by_kind.setdefault(kind, Counter())
        if outcome != "passed":
            outcomes[outcome] += 1
            tally["failed"] += 1
        elif bare(check, changed, seconds=600):  # it ended in the sandbox, so it ends
            tally["tests cannot tell"] += 1
        else:
            tally["let through"] += 1
            let_through.append(name)
    server.close()
    failed = sum(tally["failed"] for tally in by_kind.values())
    result = {
        "programs": len(rows), "references_refused": refused, "by_kind": {kind: dict(tally) for kind, tally in by_kind.items()},
        "outcomes_of_mutations": dict(outcomes), "let_through": let_through,
        "share_failing_where_tests_can_tell": round(failed / max(1, failed + len(let_through)), 4),
    }  # fmt: skip
    print(result)
    save(Path(__file__).stem, result)


if __name__ == "__main__":
    main()

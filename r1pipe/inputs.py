"""What a step is about to read, held against what is on the disk: every input whole, every step that starts from the base on the
same weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from r1pipe.artifact import SMALL_BASE, check_files
from r1pipe.errors import ArtifactError, StateError
from r1pipe.failures import shown
from r1pipe.fork import check_outputs
from r1pipe.given import file_inputs
from r1pipe.graph import Pipeline, reads_base
from r1pipe.manifest import InputRecord, read_manifest
from r1pipe.recipe import Recipe
from r1pipe.rundir import RunDir
from r1pipe.stage import Base, Step
from r1pipe.states import BaseIdentity, StepPlan


def step_inputs(
    run: RunDir, pipeline: Pipeline, recipe: Recipe, base: BaseIdentity, step: Step, plans: Mapping[str, StepPlan]
) -> dict[str, InputRecord]:
    """What the step will read, each input checked to be there in full size; small ones are read byte by byte.

    Raises:
        StateError: an earlier step is not done. ArtifactError, DataError: an output of it, or a file of the user's, is not there.
    """
    records = file_inputs(step, recipe)
    for name, source in step.reads.items():
        if isinstance(source, Base):
            model = recipe.base.model
            name_of = os.path.basename(model) if os.path.isabs(model) else model  # no absolute path in a record
            records[name] = InputRecord(step="base", digest=base.digest, model=name_of)
            continue
        manifest = plans[source.step].manifest
        if plans[source.step].state != "done" or manifest is None:
            raise StateError(
                f"step {step.name} reads {source.name!r} from {source.step}, which is {plans[source.step].state}",
                f"r1pipe run {source.step} --run {shown(run)}",
            )
        try:
            check_outputs(run, pipeline.step(source.step))
            record = manifest.outputs[source.name]
            if record.size < SMALL_BASE:  # large ones would take minutes at each start: r1pipe check --contents reads them
                check_files(run.output_path(pipeline.step(source.step), source.name), record, contents=True)
        except ArtifactError as error:
            redo = f"r1pipe run-all --run {shown(run)} --redo {source.step}   makes it again"
            raise ArtifactError(f"step {step.name} cannot start: {error.problem}", redo) from error
        records[name] = InputRecord(step=source.step, output=source.name, build=manifest.build, digest=record.digest)
    return records


def check_lineage(run: RunDir, pipeline: Pipeline, recipe: Recipe, base: BaseIdentity, step: Step) -> None:
    """Every step of a run that starts from the base model must start from the same weights.

    Raises:
        ArtifactError: names both steps and both digests.
    """
    if not reads_base(step):
        return
    digest = base.digest
    for other in pipeline.reads_base():
        if other.name == step.name or not run.manifest_path(other).exists():
            continue
        manifest = read_manifest(run.manifest_path(other), other)
        for name, source in other.reads.items():
            record = manifest.inputs.get(name)
            if isinstance(source, Base) and record is not None and record.digest != digest:
                raise ArtifactError(
                    f"step {other.name} started from base model {record.model!r} with digest {record.digest[:16]}, "
                    f"step {step.name} would start from {recipe.base.model!r} with digest {digest[:16]}",
                    f"restore the first model, or r1pipe run-all --run {shown(run)} --redo {other.name}",
                )

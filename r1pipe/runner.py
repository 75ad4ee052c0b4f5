"""The runner: runs a pipeline step by step, each in its own process, and stops where going on would be wrong.

Begin, work, commit: `begun.json` is written, the step's process works in the step's folder, the promised outputs are checked and
hashed, and `manifest.json` is written last. Only this process commits. After a kill at any moment `execute` goes on from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1pipe import processes
from r1pipe.artifact import check_artifact, digest_artifact
from r1pipe.blocked import refuse_blocked
from r1pipe.errors import ArtifactError, StepFailed, Stopped
from r1pipe.failures import failure, how_to_go_on, shown
from r1pipe.files import describe_os_error
from r1pipe.fork import create_run, discard, empty_trash, fork, tidy, verify
from r1pipe.goal import Goal, forget_goal, record_goal
from r1pipe.graph import DEFAULT_LOADER, Pipeline, reads_base
from r1pipe.inputs import check_lineage, step_inputs
from r1pipe.launch import BASE, BEGUN, LOADER, LOCK, PIPELINE, RUNNER, SHAPE, StopRequest, run_process
from r1pipe.lock import check_held, hold
from r1pipe.manifest import Begun, Manifest, new_id, to_json, write_atomic
from r1pipe.observer import Observer, without_terminal
from r1pipe.provenance import Provenance, now
from r1pipe.recipe import Recipe
from r1pipe.rundir import RunDir
from r1pipe.stage import Output, Step
from r1pipe.states import BaseIdentity, State, StepPlan, plan, state_of

__all__ = ["Observer", "State", "StepPlan", "StopRequest", "create_run", "execute", "fork", "plan", "verify"]


@dataclass(frozen=True, slots=True)
class _Session:
    """What one call of `execute` works with."""

    run: RunDir
    pipeline: Pipeline
    recipe: Recipe
    observer: Observer
    stop: StopRequest
    base: BaseIdentity
    token: str
    loader: str
    provenance: Provenance
    goal: Goal


def execute(
    run: RunDir,
    pipeline: Pipeline,
    recipe: Recipe,
    until: str | None = None,
    only: str | None = None,
    redo: Sequence[str] = (),
    observer: Observer | None = None,
    loader: str = DEFAULT_LOADER,
    stop: StopRequest | None = None,
) -> list[Manifest]:
    """Run every step that is not done, in order, each in its own process; go on with the one that was interrupted.

    Args:
        until: stage or step to stop after. only: stage or step to run alone.
        redo: stages or steps to discard first, together with everything made from them.
        loader: "module:function" by which a step's process finds its pipeline: function(name) -> Pipeline.
        stop: asks to stop from elsewhere; Ctrl-C and SIGTERM count anyway (in the main thread).

    Returns:
        The manifests of the steps that this call finished.

    Raises:
        StateError: a step is changed or stale (nothing is started), or another process holds the run.
        ArtifactError: an input is missing or torn, or two steps saw different base models.
        StepFailed: a step's process failed; `r1pipe resume` goes on.
        Stopped: the user asked to stop.
    """
    watcher = without_terminal(observer or Observer())
    wanted = _wanted(pipeline, until, only)
    finished = []
    with (stop or StopRequest()).listening() as wish, hold(run.lock_path, watcher.notice) as token:
        base = BaseIdentity(run, pipeline, recipe, write_cache=True)
        goal = Goal(until or "", only or "")
        session = _Session(run, pipeline, recipe, watcher, wish, base, token, loader, Provenance(), goal)
        empty_trash(run)
        tidy(run.root, deep=False)
        _refuse_blocked(session, wanted, redo)  # before anything is discarded: a refused start must cost nothing
        if redo:
            discard(run, pipeline, redo)
        plans: dict[str, StepPlan] = {}
        for step in pipeline.steps:
            place = plans[step.name] = state_of(step, run, pipeline, recipe, base, plans)
            if step not in wanted:
                continue
            if place.state == "done" and place.manifest is not None:
                watcher.on_skip(step, place.manifest)
                continue
            if wish.count:
                record_goal(run, goal)
                raise Stopped(f"stopped before step {step.name}", f"r1pipe resume {shown(run)}")
            try:
                manifest = _run_step(session, place, plans)
            except OSError as error:
                if not error.filename:
                    raise
                raise ArtifactError(
                    f"{error.filename}: {describe_os_error(error)}", f"then r1pipe resume {shown(run)}"
                ) from error
            finished.append(manifest)
            plans[step.name] = StepPlan(step, "done", "finished now", (), manifest)
        forget_goal(run)
    return finished


def _wanted(pipeline: Pipeline, until: str | None, only: str | None) -> list[Step]:
    """The steps that are meant, in order."""
    if only is not None:
        return list(pipeline.select(only))
    if until is None:
        return list(pipeline.steps)
    last = pipeline.select(until)[-1]
    return list(pipeline.steps[: pipeline.steps.index(last) + 1])


def _refuse_blocked(session: _Session, wanted: Sequence[Step], redo: Sequence[str]) -> None:
    """Stop before anything is discarded or started when a step, or one that it is made from, does not fit any more."""
    run, pipeline = session.run, session.pipeline
    plans: dict[str, StepPlan] = {}
    for step in pipeline.steps:
        plans[step.name] = state_of(step, run, pipeline, session.recipe, session.base, plans)
    refuse_blocked(run, pipeline, plans, wanted, redo)
    if redo:
        _refuse_missing(session, wanted, plans)


def _refuse_missing(session: _Session, wanted: Sequence[Step], plans: Mapping[str, StepPlan]) -> None:
    """Stop before anything is discarded when a step cannot be made again because what it reads is not there."""
    names = {step.name for step in wanted}
    for step in wanted:
        sources = {source.step for source in step.reads.values() if isinstance(source, Output)}
        if not sources & names and any(plans[name].state != "done" for name in sources):
            step_inputs(session.run, session.pipeline, session.recipe, session.base, step, plans)


def _run_step(session: _Session, place: StepPlan, plans: Mapping[str, StepPlan]) -> Manifest:
    """Begin or go on with one step, wait for its process, commit."""
    run, step, launch = session.run, place.step, session.recipe.launches[place.step.name]
    inputs = step_inputs(run, session.pipeline, session.recipe, session.base, step, plans)
    check_lineage(run, session.pipeline, session.recipe, session.base, step)
    folder = run.step_dir(step)
    folder.mkdir(parents=True, exist_ok=True)
    tidy(folder)
    earlier = place.begun
    if earlier is not None:
        _end_leftover(session, step, earlier)
    same = place.state == "partial"
    if same and earlier is not None and (result := _result(run, step, earlier)):
        return _commit(session, step, earlier, result)  # it had finished when the runner was killed
    begun = Begun(
        id=earlier.id if earlier and same else new_id(),
        step=step.name,
        pipeline=session.pipeline.name,
        attempt=earlier.attempt + 1 if earlier else 1,
        revision=step.revision,
        seed=session.recipe.seed,
        settings=session.recipe.settings(step, session.base.digest if reads_base(step) else ""),
        inputs=inputs,
        launch=launch.model_dump(mode="json", exclude={"env"}),
        host=session.provenance.host,
        started=earlier.started if earlier and same else now(),
    )
    for stray in (run.result_path(step), run.error_path(step), run.stop_path(step)):
        stray.unlink(missing_ok=True)
    check_held(run.lock_path, session.token)
    record_goal(run, session.goal)
    run.worked_path.touch()
    write_atomic(run.begun_path(step), to_json(begun))
    session.observer.on_step_begin(step, begun.attempt)
    extra = {
        RUNNER: f"{os.getpid()}:{processes.started(os.getpid())}",
        LOCK: session.token,
        LOADER: session.loader,
        PIPELINE: session.pipeline.name,
        SHAPE: session.pipeline.shape,
        BEGUN: begun.id,
        BASE: os.path.abspath(session.base.folder) if reads_base(step) else "",
    }
    ended = run_process(run, step, begun.attempt, launch, extra, session.observer, session.stop)
    check_held(run.lock_path, session.token)
    found = _result(run, step, begun) if ended.code == 0 else None
    if found is None:
        raise failure(run, step, begun, ended)
    return _commit(session, step, begun, {**found, "seconds": ended.seconds})


def _end_leftover(session: _Session, step: Step, begun: Begun) -> None:
    """End what an earlier runner left behind on this machine: two writers must not meet."""
    left = set(processes.marked(BEGUN, begun.id))
    try:
        worker = json.loads(session.run.worker_path(step).read_bytes())
        if worker["machine"] == processes.machine() and processes.alive(worker["pid"], worker["started"]):
            left.add(worker["pid"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # no process was recorded, or only half of one: the mark above finds it all the same
    if ended := processes.end(left):
        session.observer.notice(f"ended {len(ended)} process(es) that an earlier start of {step.name} had left behind")


def _result(run: RunDir, step: Step, begun: Begun) -> dict[str, Any] | None:
    """What the step's process handed over for this beginning; None when there is nothing whole."""
    try:
        result = json.loads(run.result_path(step).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return result if isinstance(result, dict) and result.get("begun") == begun.id else None


def _commit(session: _Session, step: Step, begun: Begun, result: Mapping[str, Any]) -> Manifest:
    """Check and hash the outputs, then write the manifest: from then on the step is done."""
    run, outputs = session.run, {}
    for name, kind in step.writes.items():
        path = run.output_path(step, name)
        try:
            check_artifact(path, kind)
        except ArtifactError as error:
            run.result_path(step).unlink(missing_ok=True)  # so that the next start runs the step again
            raise StepFailed(
                f"step {step.name} said it was done, but output {name!r} is not whole: {error.problem}",
                how_to_go_on(run, step, begun.attempt, error.hint),
            ) from error
        outputs[name] = digest_artifact(path, kind)
    manifest = Manifest(
        step=step.name,
        stage=step.stage,
        makes=step.makes,
        pipeline=begun.pipeline,
        revision=begun.revision,
        settings=begun.settings,
        seed=begun.seed,
        build=new_id(),
        inputs=begun.inputs,
        outputs=outputs,
        summary=result["summary"],
        launch=begun.launch,
        versions=session.provenance.versions,
        commit=session.provenance.commit,
        host=session.provenance.host,
        platform=session.provenance.platform,
        device=result["device"],
        wall_seconds=round(result["seconds"], 3),
        attempts=begun.attempt,
        peak_memory_bytes=result["peak_memory_bytes"],
        peak_device_bytes=result["peak_device_bytes"],
        started=begun.started,
        finished=now(),
    )
    check_held(run.lock_path, session.token)
    write_atomic(run.manifest_path(step), to_json(manifest))
    for spent in (run.begun_path, run.result_path, run.worker_path, run.error_path, run.stop_path):
        spent(step).unlink(missing_ok=True)  # all they said is in the manifest
    session.observer.on_step_end(step, manifest)
    return manifest

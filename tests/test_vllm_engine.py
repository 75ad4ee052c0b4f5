"""vLLM itself, on a processor: settings, several engines in one process, a cache that is too small, exported models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import r1pipe

from r1pipe.data.sources import open_source
from r1pipe.engines.base import Sampling, open_engine
from r1pipe.errors import EngineError
from r1pipe.pipeline import locate_base

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

NANO = locate_base("nano")
GREEDY = Sampling(1, temperature=0.0, max_tokens=64)


def questions(count: int) -> list[str]:
    return [row["question"] for row in open_source("nano", "problems", count, 12)][:count]


def test_what_the_user_has_set_is_kept_and_the_rest_is_chosen() -> None:
    import torch

    from r1pipe.engines.vllm_engine import engine_arguments, prepare_environment

    environment = {"VLLM_CPU_KVCACHE_SPACE": "7", "R1PIPE_VLLM": '{"enforce_eager": false, "max_num_seqs": 3}'}
    prepare_environment(environment, on_cpu=True)
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "7"
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    on_gpu: dict[str, str] = {}
    prepare_environment(on_gpu, on_cpu=False)
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in on_gpu
    chosen = engine_arguments(environment, True, 17, torch.float32)
    assert (chosen["dtype"], chosen["enforce_eager"], chosen["max_num_seqs"]) == ("float32", False, 3)
    assert engine_arguments({}, False, None, torch.bfloat16)["enforce_eager"] is False
    for text in ("[1]", "{"):
        with pytest.raises(EngineError, match="R1PIPE_VLLM"):
            engine_arguments({"R1PIPE_VLLM": text}, True, 1, torch.float32)


def test_engines_of_one_process_stand_beside_each_other_and_close_one_by_one() -> None:
    asked = questions(4)
    first, second = (open_engine("vllm", NANO, system="", batch=8, dtype="auto") for _ in range(2))
    before = list(first.generate(asked, GREEDY))
    assert list(second.generate(asked, GREEDY)) == before
    first.close()
    assert list(second.generate(asked, GREEDY)) == before
    second.close()
    third = open_engine("vllm", NANO, system="", batch=8, dtype="auto")
    assert list(third.generate(asked, GREEDY)) == before
    third.close()


def test_more_prompts_than_one_pass_can_read_are_answered_with_a_seed_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R1PIPE_VLLM", '{"max_num_batched_tokens": 512}')  # the prompts have some three thousand tokens
    engine = open_engine("vllm", NANO, system="", batch=128, dtype="auto")
    asked, sampling = questions(128), Sampling(1, temperature=1.0, max_tokens=8, seed=4)
    together = [several[0].text for several in engine.generate(asked, sampling)]
    engine.close()
    monkeypatch.delenv("R1PIPE_VLLM")
    few = open_engine("vllm", NANO, system="", batch=4, dtype="auto")
    alone = [several[0].text for several in few.generate(asked, sampling)]
    few.close()
    assert sum(one == other for one, other in zip(together, alone, strict=True)) >= 126


def test_a_cache_that_is_too_small_for_what_is_asked_is_an_error_and_cuts_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R1PIPE_VLLM", '{"max_model_len": 64}')
    engine = open_engine("vllm", NANO, system="", batch=8, dtype="auto")
    try:
        with pytest.raises(EngineError, match="vLLM's cache holds 64"):
            list(engine.generate(questions(2), GREEDY))
        assert len(list(engine.generate(questions(2), Sampling(1, 0.0, max_tokens=4)))) == 2
    finally:
        engine.close()


def test_an_argument_that_vllm_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R1PIPE_VLLM", '{"no_such_argument": 1}')
    with pytest.raises(EngineError, match="no_such_argument"):
        open_engine("vllm", NANO, system="", batch=8, dtype="auto")


def test_an_exported_checkpoint_gives_in_vllm_and_transformers_the_answers_that_it_gives_in_the_pipeline(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from vllm import LLM, SamplingParams

    target = tmp_path / "exported"
    done = r1pipe(tmp_path, "export", str(NANO), str(target))
    assert done.code == 0, done.err
    asked = questions(100)
    pipeline = open_engine("transformers", NANO, system="", batch=64, dtype="float32")
    wanted = [several[0].text for several in pipeline.generate(asked, GREEDY)]
    pipeline.close()

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    llm = LLM(model=str(target), dtype="float32", enforce_eager=True)  # the folder as it is, by vLLM's own chat
    conversations = [[{"role": "user", "content": question}] for question in asked]
    served = llm.chat(conversations, SamplingParams(temperature=0.0, max_tokens=64), use_tqdm=False)
    assert sum(one.outputs[0].text == text for one, text in zip(served, wanted, strict=True)) >= 99
    llm.llm_engine.engine_core.shutdown()

    tokenizer, model = AutoTokenizer.from_pretrained(target), AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    for question, text in list(zip(asked, wanted, strict=True))[:20]:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        made = model.generate(**prompt, do_sample=False, max_new_tokens=64)[0, prompt["input_ids"].shape[1] :]
        assert tokenizer.decode(made, skip_special_tokens=True) == text


def test_a_recipe_samples_with_vllm(tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"question": "What is {n} + 4?", "answer": "#### {n + 4}"}}\n' for n in range(8)))
    command = [sys.executable, "-m", "r1pipe", "eval", str(NANO), "--on", str(file), "--engine", "vllm", "--samples", "2"]
    done = subprocess.run([*command, "--max-tokens", "48"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((tmp_path / "evals/sums/results.json").read_bytes())
    (found,) = results["checkpoints"].values()
    assert 0 <= found["pass_at_1"] <= 1
    assert found["unjudged"] == 0

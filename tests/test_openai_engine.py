"""The engine over an OpenAI-compatible server, against a real HTTP server."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openai_server import completion, serving

from r1pipe.engines.base import Sampling, completion_seed, open_engine
from r1pipe.engines.openai_engine import OpenAiEngine, server_url
from r1pipe.errors import EngineError


def engine(url: str, **changes: Any) -> OpenAiEngine:
    return OpenAiEngine(url, "model", **{"first_pause": 0.01, "retries": 3, **changes})


def texts(made: Any) -> list[list[str]]:
    return [[one.text for one in several] for several in made]


def test_completions_come_in_the_order_of_the_questions_whatever_order_they_are_answered_in() -> None:
    def answer(body: dict[str, Any], number: int) -> str:
        return f"{body['messages'][-1]['content']}/{body['seed']}"

    with serving(answer, hold=0.01) as served:
        made = list(engine(served.url, system="be kind").generate([f"q{n}" for n in range(12)], Sampling(2, seed=7)))
    wanted = [[f"q{n}/{completion_seed(Sampling(seed=7), n, sample)}" for sample in range(2)] for n in range(12)]
    assert texts(made) == wanted
    assert len({text.split("/")[1] for several in wanted for text in several}) == 24
    assert {one.finish for several in made for one in several} == {"stop"}
    assert made[0][0].tokens == 1
    first = next(body for body in served.bodies if body["messages"][-1]["content"] == "q0")
    assert first["messages"][0] == {"role": "system", "content": "be kind"}
    assert first["model"] == "model"
    assert served.headers[0]["path"] == "/v1/chat/completions"


def test_no_more_requests_are_open_than_allowed() -> None:
    with serving(lambda body, number: "ok", hold=0.03) as served:
        list(engine(served.url, at_once=3).generate([str(n) for n in range(12)], Sampling()))
    assert len(served.bodies) == 12
    assert served.most_open == 3


def test_one_slow_answer_neither_ends_nor_holds_up_the_others() -> None:
    order = []

    def answer(body: dict[str, Any], number: int) -> str:
        asked = body["messages"][-1]["content"]
        time.sleep(0.5 if asked == "q0" else 0)
        order.append(asked)
        return f"a{asked[1:]}"

    with serving(answer) as served:
        made = list(engine(served.url, at_once=2).generate([f"q{n}" for n in range(10)], Sampling()))
    assert texts(made) == [[f"a{n}"] for n in range(10)]
    assert order[-1] == "q0"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return "ok" if number >= 2 else (status, "busy", {})

    with serving(answer) as served:
        made = list(engine(served.url).generate(["q"], Sampling()))
    assert texts(made) == [["ok"]]
    assert len(served.bodies) == 3


def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return "ok" if number else (429, "slow down", {"Retry-After": "0"})

    with serving(answer) as served:  # an own pause would be minutes
        assert texts(engine(served.url, first_pause=600.0).generate(["q"], Sampling())) == [["ok"]]


@pytest.mark.parametrize(
    "broken", [(200, "<html>not JSON</html>", {}), (200, '{"choices": []}', {}), (200, '{"choices": [{"message": []}]}', {})]
)
def test_an_answer_that_is_no_completion_is_tried_again_and_then_an_error_of_that_row(broken: Any) -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return broken if body["messages"][-1]["content"] == "bad" else "ok"

    with serving(answer) as served:
        good, bad = engine(served.url, retries=2).generate(["good", "bad"], Sampling())
    assert (good[0].text, bad[0].finish) == ("ok", "error")
    assert "no completion" in bad[0].note
    assert "after 2 retries" in bad[0].note
    assert len(served.bodies) == 4


def test_a_refusal_of_one_request_does_not_stop_the_others_and_is_not_tried_again() -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return (400, "prompt too long", {}) if body["messages"][-1]["content"] == "long" else "ok"

    with serving(answer) as served:
        short, long = engine(served.url).generate(["short", "long"], Sampling())
    assert short[0].text == "ok"
    assert (long[0].finish, long[0].note) == ("error", "status 400: prompt too long")
    assert len(served.bodies) == 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_stops_at_once(status: int) -> None:
    with (
        serving(lambda body, number: (status, "no such thing", {})) as served,
        pytest.raises(EngineError, match=f"status {status}"),
    ):
        list(engine(served.url, at_once=1).generate([str(n) for n in range(50)], Sampling()))
    assert len(served.bodies) < 10


def test_nobody_there_is_an_error_that_names_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with pytest.raises(EngineError, match=f"{url}: no answer .*refused.*, after 1 retries"):
        list(engine(url, retries=1).generate(["a", "b"], Sampling()))


def test_a_server_that_refuses_everything_for_now_is_an_error_that_says_how_many_requests_were_lost() -> None:
    busy = (503, "busy", {"Retry-After": "0"})
    with serving(lambda body, number: busy) as served, pytest.raises(EngineError, match="answered none of 2 requests"):
        list(engine(served.url, retries=1).generate(["a", "b"], Sampling()))


def test_a_server_that_goes_away_half_way_stops_the_step_and_leaves_no_row_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, asked = urllib.request.urlopen, 0

    def urlopen(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise urllib.error.URLError(ConnectionRefusedError("nobody listens"))
        return ask(*arguments, **options)

    with serving(lambda body, number: "ok") as served, monkeypatch.context() as patch:
        patch.setattr(urllib.request, "urlopen", urlopen)
        with pytest.raises(EngineError, match="nobody listens"):
            list(engine(served.url, retries=1, at_once=1).generate(["a", "b"], Sampling()))


def test_a_cut_answer_a_filtered_one_and_split_off_thinking_are_told_apart() -> None:
    answers = {
        "cut": (200, completion("half", "length"), {}),
        "filtered": (200, completion("", "content_filter"), {}),
        "thought": (200, completion("42", reasoning_content="six times seven"), {}),
    }
    with serving(lambda body, number: answers[body["messages"][-1]["content"]]) as served:
        cut, filtered, thought = engine(served.url).generate(list(answers), Sampling())
    assert (cut[0].text, cut[0].finish) == ("half", "length")
    assert (filtered[0].finish, filtered[0].note) == ("error", "the server ended it with 'content_filter'")
    assert thought[0].text == "<think>\nsix times seven\n</think>\n\n42"


def test_the_environment_names_the_server_and_the_key_is_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(EngineError, match="OPENAI_BASE_URL is not set"):
        open_engine("openai", "m", system="", batch=None, dtype="auto")
    with pytest.raises(EngineError, match="no http:// or https:// address"):
        server_url({"OPENAI_BASE_URL": "file:///etc/passwd"})
    with serving(lambda body, number: (401, "bad key", {})) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url + "/")
        monkeypatch.setenv("OPENAI_API_KEY", "sesame-17")
        opened = open_engine("openai", Path("m"), system="", batch=2, dtype="auto")
        with pytest.raises(EngineError) as caught:
            list(opened.generate(["q"], Sampling()))
    assert served.headers[0]["Authorization"] == "Bearer sesame-17"
    assert "sesame" not in str(caught.value)


def test_log_probabilities_and_stop_texts_are_asked_for_when_wanted_and_token_ids_of_vllm_alone() -> None:
    choice = {"message": {"content": "ok"}, "finish_reason": "stop", "token_ids": [5, 1]}
    choice["logprobs"] = {"content": [{"logprob": -0.5}, {"logprob": -0.25}]}
    body = json.dumps({"choices": [choice], "usage": {"completion_tokens": 2}})
    vllm, other = (json.dumps({"data": [{"id": "m", "owned_by": owner}]}) for owner in ("vllm", "somebody"))
    for page, asks in ((vllm, True), (other, False), ("no JSON", False)):
        with serving(lambda body_, number: (200, body, {}), pages={"/v1/models": page}) as served:
            (made,) = next(iter(engine(served.url).generate(["q"], Sampling(stop=("END",), log_probs=True))))
        assert served.bodies[0]["logprobs"] is True
        assert served.bodies[0]["stop"] == ["END"]
        assert served.bodies[0].get("return_token_ids", False) is asks
        assert (made.ids, made.log_probs) == ((5, 1), (-0.5, -0.25))
    with serving(lambda body_, number: "ok") as served:
        list(engine(served.url).generate(["q"], Sampling()))
    assert not served.bodies[0].keys() & {"logprobs", "stop", "return_token_ids"}


def test_a_question_that_is_no_unicode_is_an_error_of_its_own() -> None:
    with serving(lambda body, number: "ok") as served:
        good, bad = engine(served.url).generate(["good", "bad \ud800"], Sampling(2))
    assert [one.text for one in good] == ["ok", "ok"]
    assert [one.finish for one in bad] == ["error", "error"]
    assert "not Unicode" in bad[0].note
    assert len(served.bodies) == 2

"""vLLM behind an inference component: streamed answers, and changes that cut none of them."""

import contextlib
import threading

import pytest
from botocore.exceptions import ClientError

from container.generation_client import payload_parts, read_answer, read_events
from tests.local_cloud.account import ACCOUNT, UPDATED
from tests.local_cloud.hosted_component import MANAGED, ROLLING

pytestmark = pytest.mark.text_generation
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/vllm-server:1"
ENGINE = {
    "SM_VLLM_SERVED_MODEL_NAME": "chat",
    "SM_VLLM_MAX_MODEL_LEN": "2048",
    "SM_VLLM_MAX_NUM_SEQS": "16",
    "SM_VLLM_MAX_NUM_QUEUED_REQS": "64",
    "STANDARD_AUTO_INSTALL_REQ": "false",
}
OPTIONS = {"image": IMAGE, "environment": ENGINE, "managed": MANAGED, "startup_seconds": 600}
STREAMS = 8


def question(tokens):
    """A request whose answer has exactly so many tokens."""
    return {
        "messages": [{"role": "user", "content": "Tell me of Paris."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def read_stream(hosted, request):
    """The whole answer of a streamed request. Raises StreamBroken."""
    with contextlib.closing(hosted.open_stream(**request)["Body"]) as stream:
        return read_answer(read_events(payload_parts(stream)))


class EndlessStreams:
    """Streams one after another in threads of their own, each of so many tokens, until stopped."""

    def __init__(self, hosted, tokens):
        self.whole, self.faults, self.stopped = 0, [], threading.Event()
        self._hosted, self._tokens = hosted, tokens
        self._threads = [threading.Thread(target=self._run) for _ in range(STREAMS)]
        for thread in self._threads:
            thread.start()

    def _run(self):
        while not self.stopped.is_set():
            try:
                answer = read_stream(self._hosted, question(self._tokens))
                assert answer.usage.completion_tokens == self._tokens
                self.whole += 1
            except Exception as error:
                self.faults.append(error)
                return

    def stop(self):
        self.stopped.set()
        for thread in self._threads:
            thread.join(120)


def test_an_answer_is_streamed_and_another_model_refused(chat):
    hosted = chat("vllm-chat", **OPTIONS)
    answer = read_stream(hosted, question(20))
    assert (answer.usage.completion_tokens, answer.finish_reason) == (20, "length")
    with pytest.raises(ClientError) as refused:
        hosted.invoke(**{**question(2), "stream": False, "model": "another"})
    assert refused.value.response["OriginalStatusCode"] == 404
    assert "another" in refused.value.response["OriginalMessage"]


def test_a_rolling_update_and_a_scale_in_under_eight_streams_cut_none(chat):
    hosted = chat("vllm-rolling", deployment=ROLLING, **OPTIONS)
    streams = EndlessStreams(hosted, 300)
    try:
        more = {**OPTIONS, "environment": {**ENGINE, "SM_VLLM_MAX_NUM_SEQS": "12"}, "copies": 2}
        hosted.deploy("2", UPDATED, deployment=ROLLING, **more)
        assert hosted.copies() == 2
        updated = streams.whole
        hosted.client.update_inference_component_runtime_config(
            InferenceComponentName=hosted.name, DesiredRuntimeConfig={"CopyCount": 1}
        )
        hosted.comes_to(1)
    finally:
        streams.stop()
    assert not streams.faults
    assert updated > STREAMS
    assert streams.whole > updated

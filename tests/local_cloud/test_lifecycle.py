"""Starting, finding, stopping, and coming back after the worst."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from local_cloud import lifecycle
from local_cloud.address import is_alive
from tests.local_cloud.account import (
    BUCKET,
    CREATED,
    ROOT,
    SLEEPS,
    Account,
    build,
    endpoint_resources,
    marked_processes,
    until,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud


def test_cloud_listens_on_loopback_only(cloud):
    listening = (
        Path("/proc/net/tcp").read_text().splitlines()
        + Path("/proc/net/tcp6").read_text().splitlines()
    )
    port = f":{cloud.address.port:04X}"
    local = [
        line.split()[1] for line in listening if f"{port} " in line and line.split()[3] == "0A"
    ]
    assert local == [f"0100007F{port}"]


def test_start_again_finds_the_running_cloud(cloud):
    assert lifecycle.start(ROOT, cloud.state) == cloud.address == lifecycle.find(cloud.state)


def test_stop_ends_every_process_and_removes_what_the_cloud_made(new_state):
    account = start_with_work(new_state, "stopped")
    assert lifecycle.stop(new_state)
    assert not is_alive(account.address)
    assert wait_until_gone("stopped")
    assert [path.name for path in new_state.iterdir()] == ["images.yaml"]
    assert not lifecycle.stop(new_state)


def test_killed_cloud_leaves_no_process_and_starts_again(new_state):
    account = start_with_work(new_state, "killed")
    assert marked_processes("killed")
    os.kill(account.address.pid, signal.SIGKILL)
    until(lambda: not alive(account.address))
    assert wait_until_gone("killed")
    assert lifecycle.find(new_state) is None
    again = lifecycle.start(ROOT, new_state)
    assert lifecycle.find(new_state) == again != account.address


def test_start_that_is_interrupted_leaves_no_process(new_state, monkeypatch):
    """The interruption comes as the process exists and its starter does not know it yet."""
    spawned = []

    def interrupt(*arguments, **options):
        spawned.append(os_spawn(*arguments, **options))
        raise KeyboardInterrupt

    os_spawn = os.posix_spawn
    monkeypatch.setattr(os, "posix_spawn", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lifecycle.start(ROOT, new_state)
    until(lambda: os.waitpid(spawned[0], os.WNOHANG)[0] == spawned[0])
    assert lifecycle.find(new_state) is None


def start_with_work(state, name):
    """Starts a local cloud in which an endpoint answers and a build runs, both marked with one
    name.
    """
    account = Account(lifecycle.start(ROOT, state), state)
    account.client("s3").create_bucket(Bucket=BUCKET)
    status, reason = account.deploy(
        name, endpoint_resources(name, account.put_archive(f"{name}.tar.gz", "hi"))
    )
    assert (status, reason) == CREATED
    build(account, name, SLEEPS)
    until(lambda: sleeps(name))
    account.close()
    return account


def sleeps(name):
    """Whether the marked build has reached its command."""
    return any(process_name(pid) == "sleep" for pid in marked_processes(name))


def process_name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(address):
    """Buries the cloud if it has ended, as its parent must, and says whether it still runs."""
    os.waitpid(address.pid, os.WNOHANG)
    return is_alive(address)


def root_of(folder, program):
    """A repository whose local cloud is another program."""
    python = folder / "root" / ".venvs" / "cloud" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(program)
    python.chmod(0o755)
    return folder / "root"


def test_refuses_to_wait_for_a_cloud_that_died(tmp_path):
    root = root_of(tmp_path, "#!/bin/sh\necho no such emulator\nexit 3\n")
    with pytest.raises(
        lifecycle.CloudError,
        match=r"stopped while starting: no such emulator \(log: .*cloud\.log\)",
    ):
        lifecycle.start(root, tmp_path / "state")
    shutil.rmtree(tmp_path / "state")

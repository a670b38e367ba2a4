"""What the front reads of the engine's variables."""

from __future__ import annotations

import pytest

from container.generation_front.settings import engine_environment, read_engine_settings
from container.server.settings import SettingsFault

pytestmark = pytest.mark.unit
NAME = {"SM_VLLM_SERVED_MODEL_NAME": "chat"}


def test_vllms_own_bound_counts_what_runs_and_what_waits():
    queued = {"SM_VLLM_MAX_NUM_SEQS": "8", "SM_VLLM_MAX_NUM_QUEUED_REQS": "12"}
    assert read_engine_settings({**NAME, **queued}).most_sequences == 12


def test_an_engine_without_a_bound_gets_one_here():
    assert read_engine_settings({**NAME, "SM_VLLM_MAX_NUM_SEQS": "8"}).most_sequences == 16
    assert read_engine_settings(NAME).most_sequences == 512


def test_names_are_read_as_awss_entry_point_reads_them():
    assert read_engine_settings({"SM_VLLM_SERVED_MODEL_NAME": '["a", "b"]'}).models == ("a", "b")


@pytest.mark.parametrize(
    "modules",
    ['{"name": "a1", "path": "/x"} {"path": "/y", "name": "b2"}', "a1=/x b2=/y",
     '["a1=/x", "b2=/y"]'],
)  # fmt: skip
def test_adapters_of_the_start_are_known(modules):
    variables = {**NAME, "SM_VLLM_ENABLE_LORA": "true", "SM_VLLM_LORA_MODULES": modules}
    assert read_engine_settings(variables).adapter_names == ("a1", "b2")
    without = read_engine_settings({**variables, "SM_VLLM_ENABLE_LORA": "false"})
    assert (without.adapters, without.adapter_names) == (False, ())


def test_the_engine_listens_where_only_the_front_asks():
    variables = engine_environment({"SM_VLLM_PORT": "8080", "X": "1"}, 8081)
    assert variables == {"SM_VLLM_PORT": "8081", "SM_VLLM_HOST": "127.0.0.1", "X": "1"}


def test_refuses_every_wrong_variable_at_once():
    with pytest.raises(SettingsFault) as fault:
        read_engine_settings({"SM_VLLM_MAX_MODEL_LEN": "8k", "SM_VLLM_MAX_NUM_SEQS": "0"})
    names = ("SM_VLLM_SERVED_MODEL_NAME", "SM_VLLM_MAX_MODEL_LEN is '8k'", "MAX_NUM_SEQS is '0'")
    assert all(name in str(fault.value) for name in names)

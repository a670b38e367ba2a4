"""The environment of Triton's `serve`: what we set, told once."""

from onboarding.serve_environment import (
    ADDITIONAL_ARGS,
    DEFAULT_MODEL,
    python_server_environment,
    serve_environment,
)


def test_single_model_is_named_and_a_multi_model_server_names_none():
    one, several = serve_environment("embedder"), serve_environment(None)
    assert one.pop(DEFAULT_MODEL) == "embedder"
    assert one == several == {
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        "SAGEMAKER_TRITON_PING_MODE": "ready",
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--disable-auto-complete-config",
    }  # fmt: skip


def test_settings_of_models_become_arguments():
    libraries = ("libone.so", "libtwo.so")
    found = serve_environment(
        None,
        version_compatible=True,
        plugins=libraries,
        other_models=("one", "two"),
        response_cache=True,
    )[ADDITIONAL_ARGS]
    assert found.split() == [
        "--disable-auto-complete-config",
        "--backend-config=tensorrt,version-compatible=true",
        "--backend-config=tensorrt,plugins=/opt/ml/model/libone.so;/opt/ml/model/libtwo.so",
        "--load-model=one",
        "--load-model=two",
        "--cache-config=local,size=67108864",
    ]


def test_metrics_are_on_a_port_that_sagemaker_allows():
    without, found = serve_environment("embedder"), serve_environment("embedder", metrics=True)
    assert found == without | {
        "SAGEMAKER_TRITON_ALLOW_METRICS": "true",
        "SAGEMAKER_TRITON_METRICS_PORT": "23000",
    }


def test_asynchronous_python_server_takes_what_sagemaker_passes_on():
    variables = python_server_environment(asynchronous=True)
    assert int(variables["ROUNDHOUSE_MAX_BODY_BYTES"]) >= 10**9
    assert int(variables["ROUNDHOUSE_MAX_REQUEST_ROWS"]) <= int(variables["ROUNDHOUSE_QUEUE_ROWS"])
    assert python_server_environment(asynchronous=False) == {}


def test_python_server_has_the_slots_of_the_model_file():
    found = python_server_environment(asynchronous=True, slots=3)
    assert found == python_server_environment(asynchronous=True) | {"ROUNDHOUSE_SLOTS": "3"}

"""The environment of Triton's `serve`: what we set, told once."""

from onboarding.serve_environment import (
    ADDITIONAL_ARGS,
    python_server_environment,
    serve_environment,
)


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


def test_asynchronous_python_server_takes_what_sagemaker_passes_on():
    variables = python_server_environment(asynchronous=True)
    assert int(variables["ROUNDHOUSE_MAX_BODY_BYTES"]) >= 10**9
    assert int(variables["ROUNDHOUSE_MAX_REQUEST_ROWS"]) <= int(variables["ROUNDHOUSE_QUEUE_ROWS"])
    assert python_server_environment(asynchronous=False) == {}

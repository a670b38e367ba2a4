"""Which of the runtimes' words are about memory."""

from __future__ import annotations

import pytest

from container.tensorrt.faults import mentions_memory_shortage


@pytest.mark.parametrize(
    "words",
    [
        "IExecutionContext creation failed: OutOfMemory (no further information)",
        "[defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)",
        "Error Code 10: insufficient memory for a tactic",
        "CUDNN_STATUS_ALLOC_FAILED: cudaErrorMemoryAllocation: OUT_OF_MEMORY",
        "Failed to allocate memory for requested buffer of size 1073741824",
        "std::bad_alloc",
        "PosixThread pthread_create failed, error code: 12 error msg: Cannot allocate memory",
        "PosixThread pthread_create failed, error code: 11 error msg: Resource temporarily "
        "unavailable",
        "can't start new thread",
        "can't allocate lock",
        'ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "" }) }',
    ],
)
def test_words_about_memory_are_distinguished(words):
    assert mentions_memory_shortage(words)


@pytest.mark.parametrize(
    "words",
    ["", "Non-zero status code returned while running Gather node", "memory format is wrong"],
)
def test_refuses_to_take_other_words_for_it(words):
    assert not mentions_memory_shortage(words)

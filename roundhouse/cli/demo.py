"""`roundhouse demo`: the whole pipeline on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse import interruption
from roundhouse.errors import UsageError

EXAMPLE = "make demo"


Chat = Annotated[
    bool, typer.Option("--chat", help="A chat model served by vLLM; `make demo-chat` prepares it.")
]


Gpu = Annotated[
    bool,
    typer.Option(
        "--gpu", help="TensorRT engines for the GPU of this machine, behind both servers."
    ),
]


def demo(chat: Chat = False, gpu: Gpu = False) -> None:
    """Run the whole pipeline on this machine.

    On real input; invokes both endpoints. `make demo` prepares the machine first.
    """
    if chat and gpu:
        raise UsageError("--chat and --gpu: name one of them; each is a demo of its own.")
    try:
        if gpu:
            from roundhouse.dev.demo.gpu_demo import run_gpu_demo

            run_gpu_demo()
        elif chat:
            from roundhouse.dev.demo.chat_demo import run_demo_chat

            run_demo_chat()
        else:
            from roundhouse.dev.demo.demo import run_demo

            run_demo()
    except BaseException:
        # Not only KeyboardInterrupt: a library that was being loaded may have turned it into an
        # error of its own.
        if not interruption.is_requested():
            raise
        interruption.ignore()
        _stop_interrupted()
        raise typer.Exit(130) from None


def _stop_interrupted() -> None:
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import stop_local_cloud

    stop_local_cloud(current_paths())
    open_report().print(
        "Stopped: the local cloud and everything in it is gone. `make demo` begins anew."
    )

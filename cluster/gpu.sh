#!/usr/bin/env bash
# Shows the engine for GPUs on a machine with an NVIDIA GPU: packs the program, its suite and their data into a folder that
# runs without this repository, or packs and runs it here.
set -euo pipefail

usage() {
    cat <<'END'
usage: gpu.sh --pack DIR      write a package: DIR/run.sh OUT [SECONDS] runs it on x86-64 Linux with an NVIDIA driver
       gpu.sh [OUT [SECONDS]] pack and run here; figures in OUT (gpu-figures), profiles in profiles/gpu
Environment: FEATURES (none), features of the build besides the default ones
             GLIBC (2.34), the oldest version of glibc that the programs must run with
             PACKAGE_CASES (all), operator cases: those whose names contain one of these, separated by commas
END
}

HERE=$(cd "$(dirname "$0")/.." && pwd)
MAX_MIB=50
MAX_GLIBC=${GLIBC:-2.34}
MODELS='resnet18 torch_bert_tiny torch_mobilenet_v2 torch_yolov3_tiny'

fail() {
    echo "gpu.sh: $*" >&2
    exit 1
}

# The path of the suite's binary, as cargo reports it.
build() {
    cargo build --release --features "${FEATURES:-}"
    SUITE=$(cargo test --release --features "${FEATURES:-}" --test gpu --no-run --message-format json |
        sed -n 's/.*"name":"gpu".*"executable":"\([^"]*\)".*/\1/p')
    [ -x "$SUITE" ] || fail 'cargo did not report the binary of tests/gpu.rs'
}

# Operator cases, <family>/<case>.relay and .npz, and their index.
pack_cases() {
    local from=$1/cases to=$2/cases family name rest
    mkdir -p "$to"
    head -n 1 "$from/index.csv" >"$to/index.csv"
    tail -n +2 "$from/index.csv" | while IFS=, read -r name family rest; do
        matches "$family/$name" || continue
        mkdir -p "$to/$family"
        cp "$from/$family/$name.relay" "$from/$family/$name.npz" "$to/$family/"
        echo "$name,$family,$rest" >>"$to/index.csv"
    done
}

matches() {
    local part parts
    IFS=, read -ra parts <<<"${PACKAGE_CASES:-}"
    [ ${#parts[@]} != 0 ] || return 0
    for part in "${parts[@]}"; do
        [[ $1 != *"$part"* ]] || return 0
    done
    return 1
}

# A program without symbols, compressed. It must run with glibc MAX_GLIBC.
pack_program() {
    local newest
    strip -o "$2" "$1"
    newest=$(grep -aohE 'GLIBC_2\.[0-9]+' "$2" | sort -uV | tail -n 1)
    printf '%s\n%s\n' "$newest" "GLIBC_$MAX_GLIBC" | sort -CV || fail "$1 needs $newest: build on a system with glibc $MAX_GLIBC, or set GLIBC if the other machine has a newer one"
    gzip -9 "$2"
}

pack() {
    local package=$1 data=$HERE/../shared/relay model size
    [ ! -e "$package" ] || [ -z "$(ls -A "$package")" ] || fail "$package is not empty"
    [ -d "$data" ] || data=$HERE/tests/data/relay
    build
    mkdir -p "$package/models" "$package/relay/expected"
    package=$(cd "$package" && pwd)
    pack_program target/release/edgecut "$package/edgecut"
    pack_program "$SUITE" "$package/suite"
    cp cluster/gpu_run.sh "$package/run.sh"
    python3 deploy/sbom.py '' "${FEATURES:-}" >"$package/edgecut.cdx.json"
    pack_cases "$data" "$package/relay"
    cp "$data"/expected/*.npz "$package/relay/expected/"
    for model in "$package"/relay/expected/*.npz; do
        model=$(basename "$model" .npz)
        if [ -e "models/$model.relay" ]; then cp "models/$model.relay" "$package/models/"; else cp "$data/models/$model.relay" "$package/models/"; fi
    done
    for model in $MODELS; do
        target/release/edgecut export "models/$model.relay" --format onnx --seeded-weights --output "$package/models/$model.onnx" >/dev/null
    done
    {
        echo "commit $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
        echo "made $(date -u +%Y-%m-%dT%H:%M:%SZ)"
        (cd "$package" && find . -type f -printf '%s %P\n' | sort -k 2)
    } >"$package/manifest.txt"
    size=$(du -sm --apparent-size "$package" | cut -f 1)
    [ "$size" -le "$MAX_MIB" ] || fail "$package has $size MiB, more than $MAX_MIB"
    echo "$package: $size MiB, $(($(wc -l <"$package/relay/cases/index.csv") - 1)) operator cases"
}

case ${1:-} in
-h | --help) usage ;;
--pack)
    [ $# = 2 ] || { usage >&2; exit 2; }
    mkdir -p "$2"
    PACKAGE=$(cd "$2" && pwd)
    cd "$HERE"
    pack "$PACKAGE"
    ;;
-*) usage >&2; exit 2 ;;
*)
    mkdir -p "${1:-gpu-figures}"
    OUT=$(cd "${1:-gpu-figures}" && pwd)
    PACKAGE=$(mktemp -d)
    trap 'rm -rf "$PACKAGE"' EXIT
    cd "$HERE"
    pack "$PACKAGE"
    "$PACKAGE/run.sh" "$OUT" "${2:-480}"
    mkdir -p profiles/gpu
    cp "$OUT"/profile-*.csv profiles/gpu/
    ;;
esac

#!/usr/bin/env bash
# Everything that is to be shown on a machine with an NVIDIA GPU, in one go: what is found, kernels compiled for the
# card, operators and models against what TVM computed with fall-backs by name, sums against wholes, shares of the card's
# peak against libraries called directly, links, a plan over processor and card as predicted and as measured, and a
# profile of every example model. The figures stand in OUT/figures.txt, everything that was printed in OUT/log.txt.
set -uo pipefail

usage() {
    cat <<'END'
usage: gpu.sh [OUT]
  OUT   folder of what is written, gpu-figures if not given
Environment: PROFILES (folder of the profiles, profiles/gpu of this repository if not given), BUDGET (20s: time to
measure each model with on each device), EDGECUT_CASES (only cases and models whose names contain this).
END
}

case ${1:-} in -h | --help) usage; exit 0 ;; esac
HERE=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-gpu-figures}"
OUT=$(cd "${1:-gpu-figures}" && pwd)
PROFILES=${PROFILES:-$HERE/profiles/gpu}
BUDGET=${BUDGET:-20s}
EDGECUT=$HERE/target/release/edgecut
cd "$HERE" || exit 1
: >"$OUT/log.txt"
: >"$OUT/figures.txt"
FAILED=()

# Runs a command, shows and keeps what it prints; goes on if it fails, and says so at the end.
step() {
    local name=$1
    shift
    printf '\n== %s\n' "$name" | tee -a "$OUT/log.txt"
    "$@" 2>&1 | tee -a "$OUT/log.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || { FAILED+=("$name"); echo "FAILED: $name" | tee -a "$OUT/log.txt"; }
}

step 'build' cargo build --release --features cuda
[ -x "$EDGECUT" ] || { echo 'gpu.sh: the program does not build' >&2; exit 1; }
{
    date -u +%Y-%m-%d
    uname -sr
    grep -m 1 'model name' /proc/cpuinfo
    ! command -v nvidia-smi >/dev/null || nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.sm,power.limit --format=csv
    "$EDGECUT" devices
} >"$OUT/machine.txt" 2>&1
cat "$OUT/machine.txt"
if ! "$EDGECUT" devices --format json 2>/dev/null | grep -q '"local/gpu0"'; then
    echo 'gpu.sh: no GPU is offered on this machine, for the reasons above; nothing was run' >&2
    exit 1
fi

export EDGECUT_REQUIRE_GPU=1 EDGECUT_REQUIRE_NVRTC=1
suite() {
    cargo test --release --features gpu-tests "$@" -- --nocapture --test-threads 1
}
step 'kernels, compiled for all architectures' suite -p edgecut-engine --lib cuda
step 'the suite on the GPU' suite --test gpu

# A profile of every example model on CPU and GPU, with the machine's description.
mkdir -p "$PROFILES"
cp "$OUT/machine.txt" "$PROFILES/machine.txt"
for model in models/*.relay; do
    step "profile of $model" "$EDGECUT" profile "$model" --budget "$BUDGET" --output "$PROFILES"
done
# What ran at another speed than the suite's plan: predicted against measured of an optimised program, three times.
cat >"$OUT/small-card.toml" <<'END'
[[server]]
name = "local"
device = [{ name = "gpu0", memory = "24MiB" }]
END
for model in resnet18 torch_yolov3_tiny; do
    for cluster in cluster/local.toml "$OUT/small-card.toml"; do
        plan=$OUT/$model-$(basename "$cluster" .toml).json
        step "plan of $model, $(basename "$cluster")" "$EDGECUT" plan "models/$model.relay" --cluster "$cluster" \
            --profile "$PROFILES" --profile-budget "$BUDGET" --output "$plan"
        [ ! -e "$plan" ] || for _ in 1 2 3; do
            step "run of $model, $(basename "$cluster")" "$EDGECUT" run "$plan" --cluster "$cluster" --repeat 20
        done
    done
done

{
    cat "$OUT/machine.txt"
    echo
    grep -E 'NVRTC [0-9]|cases computed|of the tolerance|fell back|operators [0-9]+ us|TFLOP/s|Pinned|Pageable|predicted [0-9]|^latency|outputs |FAILED|SKIPPED|panicked|^test result' "$OUT/log.txt"
} >"$OUT/figures.txt"
echo
echo "figures: $OUT/figures.txt; profiles: $PROFILES"
if [ ${#FAILED[@]} != 0 ]; then
    printf 'failed: %s\n' "${FAILED[@]}"
    exit 1
fi

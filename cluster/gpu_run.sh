#!/usr/bin/env bash
# Runs a package of `cluster/gpu.sh --pack` on a machine with an NVIDIA GPU: one step after another, the most valuable
# first, each with a time limit. A failed step does not stop the others. After each step, OUT has the results so far:
# figures.txt (a screen), log.txt (everything printed), profiles, runs and links as CSV.
set -uo pipefail

usage='usage: run.sh OUT [SECONDS]   SECONDS for all steps, 480 if not given; with more, each step may take longer too
Environment: STEPS, a pattern of the names of steps to run (all)'
case ${1:-} in -h | --help) echo "$usage"; exit 0 ;; '') echo "$usage" >&2; exit 2 ;; esac
[[ ${2:-480} =~ ^[0-9]+$ ]] || { echo "$usage" >&2; exit 2; }
PACKAGE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" || exit 2
OUT=$(cd "$1" && pwd)
TOTAL=${2:-480}
END=$((SECONDS + TOTAL))
WORK=$(mktemp -d) || exit 1
trap 'rm -rf "$WORK"' EXIT
EDGECUT=$WORK/edgecut
SUITE=$WORK/suite
for program in edgecut suite; do
    gzip -dc "$PACKAGE/$program.gz" >"$WORK/$program" || exit 1
    chmod +x "$WORK/$program"
done
: >"$OUT/log.txt"
: >"$OUT/figures.txt"
export EDGECUT_PACKAGE=$PACKAGE EDGECUT_PROGRAM=$EDGECUT HOME=${HOME:-$WORK}
cd "$WORK" || exit 1
MODELS='resnet18 torch_mobilenet_v2 torch_bert_tiny torch_yolov3_tiny'

# Folders of NVIDIA's libraries beyond the loader's path: the toolkit's, and those of every Python's packages.
library_folders() {
    local python folder
    ls -d /usr/local/cuda*/lib64 /usr/local/nvidia/lib64 2>/dev/null
    for python in $(IFS=:; for folder in $PATH /usr/local/bin /opt/*/bin /opt/*/.venv/bin "$HOME"/.pyenv/versions/*/bin; do
        [ ! -x "$folder/python3" ] || echo "$folder/python3"; done | sort -u); do
        timeout 5 "$python" -c 'import sys; print("\n".join(sys.path))' 2>/dev/null | while read -r folder; do
            ls -d "$folder"/nvidia/*/lib 2>/dev/null
        done
    done
}
FOLDERS=$(library_folders | awk '!seen[$0]++' | paste -sd:)
# cudarc, by which the suite calls cuBLAS directly, knows no names of CUDA 13 but the one without a version.
mkdir "$WORK/lib"
for found in $(IFS=:; for folder in $FOLDERS; do ls -d "$folder"/libcublas.so.1[23] 2>/dev/null; done); do
    ln -sf "$found" "$WORK/lib/libcublas.so"
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$FOLDERS:$WORK/lib

figure() { tee -a "$OUT/figures.txt"; }

# step NAME SECONDS FIGURES COMMAND…: lines of what the command prints that match FIGURES go to figures.txt. SECONDS are those
# of 480 in all.
step() {
    local name=$1 limit=$2 pattern=$3 begin=$SECONDS status
    [ "$TOTAL" -le 480 ] || limit=$((limit * TOTAL / 480))
    shift 3
    [[ $name =~ ${STEPS:-.} ]] || return 1
    local left=$((END - SECONDS))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 3 ]; then
        echo "== $name: not run, no time left" | figure
        return 1
    fi
    printf '\n== %s: %s\n' "$name" "$*" >>"$OUT/log.txt"
    timeout -k 3 "$limit" "$@" >"$WORK/step.txt" 2>&1
    status=$?
    cat "$WORK/step.txt" >>"$OUT/log.txt"
    case $status in
    0) status=passed ;;
    124 | 137) status="stopped after its limit of $limit s" ;;
    *) status="FAILED ($status)" ;;
    esac
    echo "== $name: $status, $((SECONDS - begin)) s" | figure
    # Characters of more than one byte could be cut.
    grep -E "$pattern" "$WORK/step.txt" | LC_ALL=C tr -cd '\n -~' | cut -c 1-300 | head -n 60 | figure
    [ "$status" = passed ]
}

suite() {
    local name=$1 limit=$2 pattern=$3 test=$4
    shift 4
    step "$name" "$limit" "$pattern|panicked|^assertion|SKIPPED" env "$@" "$SUITE" --exact --include-ignored --nocapture --test-threads 1 "$test"
}

# CSV whose quoted fields have semicolons in place of commas, so that awk can split it.
unquoted() {
    awk -F'"' -v OFS= '{ for (i = 2; i <= NF; i += 2) gsub(",", ";", $i); print }'
}

# What a profile says of each device: groups measured, their time, energy, and how many have a note.
summary() {
    unquoted <"$2" | awk -F, -v model="$1" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { d = $at["device"]; rows[d]++; time[d] += $at["time_us_median"]; joule[d] += $at["energy_j"]; engine[d] = $at["engine"]
          if ($at["time_us_median"] == "") none[d]++ }
        END { for (d in rows) printf "%s on %s (%s): %d groups, %.0f us, %.4f J, %d not computed\n", model, d, engine[d], rows[d], time[d], joule[d], none[d] }' | sort
}

profile() {
    local model
    for model in $MODELS; do
        "$EDGECUT" profile "$PACKAGE/models/$model.relay" --budget 5s --format csv --output profiles >profile.csv || return
        mv profile.csv "$OUT/profile-$model.csv"
        cp profiles/links.csv "$OUT/links.csv" 2>/dev/null
        summary "$model" "$OUT/profile-$model.csv"
    done
}

# EOP's comparison: each device alone, both, and both with less memory than the model needs on either.
plans() {
    local model place failed=0 flags
    set -o pipefail
    printf '[[server]]\nname = "local"\ndevice = [{ name = "cpu", memory = "40MiB" }, { name = "gpu0", memory = "30MiB" }]\n' >limits.toml
    for model in resnet18 torch_yolov3_tiny; do
        for place in cpu gpu0 both limits; do
            case $place in
            both) flags=() ;;
            limits) flags=(--cluster limits.toml) ;;
            *) flags=(--pin "*=local/$place") ;;
            esac
            if "$EDGECUT" plan "$PACKAGE/models/$model.relay" "${flags[@]}" --profile profiles \
                --profile-budget 3s --time-limit 10s --output plan.json | sed "s/^/$model on $place: planned /"; then
                "$EDGECUT" run plan.json --repeat 20 | sed "s/^/$model on $place: /" || failed=1
            else
                echo "$model on $place: no plan, its latency is unknown"
            fi
        done
    done
    return $failed
}

energy() {
    local found
    found=$("$EDGECUT" devices --format csv | unquoted | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { print $at["device"] ($at["energy_source"] == "" ? ": no energy: " $at["energy_absent"] : ": energy from " $at["energy_source"]) }')
    echo "$found"
    grep -q 'gpu0: energy from nvml' <<<"$found"
}

export -f unquoted summary profile plans energy
export PACKAGE OUT WORK MODELS EDGECUT

{
    head -n 1 "$PACKAGE/manifest.txt"
    date -u +%Y-%m-%dT%H:%M:%SZ
    uname -srm
    grep -m 1 'model name' /proc/cpuinfo
    nproc
    "$EDGECUT" --version
    echo "libraries looked for in $LD_LIBRARY_PATH"
    ! command -v nvidia-smi >/dev/null || timeout 10 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv
} >>"$OUT/log.txt" 2>&1
# The first call loads NVIDIA's libraries, which may come from a slow disk.
timeout 90 "$EDGECUT" devices --format csv --links "$WORK/links.csv" >"$WORK/devices.txt" 2>"$WORK/devices.err"
echo "devices: exit code $? after $SECONDS s" >>"$OUT/log.txt"
cat "$WORK/devices.txt" "$WORK/devices.err" >>"$OUT/log.txt"
if ! grep -q 'local/gpu0' "$WORK/devices.txt"; then
    timeout 15 "$EDGECUT" devices --format json --links "$WORK/links.csv" >"$WORK/devices.json" 2>&1
    why=$(tr '\n' ' ' <"$WORK/devices.json" | grep -oE 'no GPU: [^"]*' | head -n 1)
    { cat "$WORK/devices.json"; ldconfig -p | grep -E 'cuda|cudnn|cublas|nvrtc'; } >>"$OUT/log.txt" 2>&1
    echo "run.sh: ${why:-no GPU: \`edgecut devices\` did not answer; see log.txt}" | figure >&2
    exit 1
fi
step 'devices and versions' 60 . "$EDGECUT" devices --links "$WORK/links.csv"

first=0
for _ in 1 2 3 4 5; do
    suite "operator cases from $first" 100 '^family|^DIFFERS|cases computed|is lost at case|driver for CUDA' operators_on_the_gpu_compute_what_tvm_computes EDGECUT_FIRST_CASE=$first && break
    first=$(sed -n 's/.*the GPU is lost at case \([0-9]*\).*/\1/p' "$WORK/step.txt" | head -n 1)
    [ -n "$first" ] || break
    first=$((first + 1))
done
suite 'models against expected outputs' 60 'of the tolerance|fell back' models_on_the_gpu_compute_what_tvm_computes \
    EDGECUT_CASES=resnet18,torch_mobilenet_v2,torch_bert_tiny,torch_yolov3_tiny
suite 'out of memory and recovery' 30 'held:|recovered' a_full_gpu_recovers
step 'profiles on cpu and gpu0' 150 'groups,' bash -c profile
suite 'dense layer against cuBLAS' 30 'TFLOP/s' a_dense_layer_is_as_fast_as_the_matrix_library
suite 'convolution against cuBLAS and cuDNN' 30 'TFLOP/s' a_convolution_against_the_libraries
suite 'copies and their fit' 30 'Pinned|Pageable' copies_cost_what_a_line_says
suite 'a plan over CPU and GPU' 120 'predicted [0-9]|operators are split|outputs differ' a_plan_over_cpu_and_gpu_runs_as_predicted
step 'plans on CPU, GPU and both' 100 '(latency:|outputs|/gpu0 .*MiB|/cpu .*MiB)' bash -c plans
step 'energy' 20 'energy' bash -c energy
if command -v compute-sanitizer >/dev/null || [ -x /usr/local/cuda/bin/compute-sanitizer ]; then
    PATH=$PATH:/usr/local/cuda/bin step 'a profile under compute-sanitizer' 60 'ERROR SUMMARY|=========.*(Invalid|Error|error)' compute-sanitizer \
        "$EDGECUT" profile "$PACKAGE/models/torch_bert_tiny.relay" --budget 1s --output "$WORK/checked"
elif [[ 'a profile under compute-sanitizer' =~ ${STEPS:-.} ]]; then
    echo '== a profile under compute-sanitizer: not run, it is not installed' | figure
fi
suite 'operators add up to the model' 60 'whole' operators_add_up_to_the_model
suite 'all other models' 120 'of the tolerance|fell back' models_on_the_gpu_compute_what_tvm_computes
echo "figures: $OUT/figures.txt"

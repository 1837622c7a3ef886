#!/usr/bin/env bash
# Plans that come true? Makes the clusters of cluster/lab*.toml on this machine, one after the other, plans models on each
# for several targets, runs the plans and the best single device's plan in turn, and writes what was predicted and what
# was measured as CSV. docs/cluster.md says what the columns are.
set -euo pipefail

usage() {
    cat <<'END'
usage: measure.sh OUT.csv [CLUSTER:MODEL:TARGET...]
  CLUSTER   name of a file cluster/CLUSTER.toml, such as lab or dilated/2; CLUSTER@RATE with links of another rate:
            dilated/2@100Mbit/s
  MODEL     name of a file MODEL.relay in one of the folders of MODELS
  TARGET    flags of `edgecut plan`, with + for a space: --memory+300MiB, --ratios+equal; or latency alone. With
            --objective+throughput times are those between results, with inputs in flight
Without triples, those of the table in docs/cluster.md. Environment: MODELS (folders, models/ of this repository if not
given), EDGECUT (the program), ROUNDS (3: how often everything is profiled, planned and run), TURNS (3: how often
the plans of a triple take turns), REPEAT (8: runs that count each time), ENGINE (tract, onnxruntime or auto, instead of
the agents' own), CALIBRATE (1: calibrate every cluster first in each round), PROFILES (a folder that keeps the profiles
of each round, which are not measured again in it), PREFIX (a command that others are run by, such as one that makes
others wait), ALONE (devices to measure alone, such as "one/cpu": of a lab of equal devices one is enough; all if not
given).
END
}

[ $# -ge 1 ] || { usage >&2; exit 2; }
HERE=$(cd "$(dirname "$0")" && pwd)
OUT=$(realpath "$1")
shift
IFS=' ' read -r -a FOLDERS <<<"${MODELS:-$HERE/../models}"
IFS=' ' read -r -a WITH <<<"${PREFIX:-}"
EDGECUT=$(realpath "${EDGECUT:-$HERE/../target/release/edgecut}")
export EDGECUT
export EDGECUT_LAB=${EDGECUT_LAB:-measure}
ROUNDS=${ROUNDS:-3}
REPEAT=${REPEAT:-8}
ENGINE=${ENGINE:-}
CALIBRATE=${CALIBRATE:-}
TURNS=${TURNS:-3}
LAB=$HERE/lab.sh

TRIPLES=("$@")
if [ ${#TRIPLES[@]} = 0 ]; then
    for cluster in lab lab-100mbit lab-three; do
        for model in vgg16_bn resnet50 torch_yolov3_tiny resnet18; do TRIPLES+=("$cluster:$model:latency"); done
    done
    for model in vgg16_bn resnet50 torch_yolov3_tiny; do
        TRIPLES+=("lab-three:$model:--ratios+equal" "lab-three:$model:--ratios+proportional")
    done
    TRIPLES+=(lab:resnet18:--memory+40MiB lab:squeezenet_v1.1:latency)
fi

find_model() {
    local folder
    for folder in "${FOLDERS[@]}"; do
        [ ! -e "$folder/$1.relay" ] || { realpath "$folder/$1.relay"; return; }
    done
    echo "measure: no $1.relay in ${FOLDERS[*]} (MODELS)" >&2
    return 1
}

WORK=$(mktemp -d)
PROFILES=${PROFILES:-$WORK}
trap '"$LAB" down; rm -rf "$WORK"' EXIT
for triple in "${TRIPLES[@]}"; do find_model "$(cut -d: -f2 <<<"$triple")" >/dev/null; done

# The program as the command line's machine of the lab.
inside() { "${WITH[@]}" "$LAB" exec "$EDGECUT" "$@"; }

# Plan $1 in the working folder is made with the other flags.
plan() {
    local output=$1
    shift
    inside plan "$path" --cluster "$file" --profile "$profiles" --profile-budget 8s --output "$output" \
        ${ENGINE:+--engine "$ENGINE"} "$@" \
        >"$WORK/plan.out" 2>"$WORK/plan.err"
}

echo "cluster,model,target,round,devices,splits,predicted_us,measured_us,error,best_device,best_device_us,speedup,\
memory_device,predicted_memory_bytes,measured_memory_bytes,memory_limit_bytes,memory_error,outputs" >"$OUT"
for ((round = 1; round <= ROUNDS; round++)); do
    up=
    for subject in $(printf '%s\n' "${TRIPLES[@]}" | cut -d: -f1,2 | awk '!seen[$0]++'); do
        IFS=: read -r cluster model <<<"$subject"
        path=$(find_model "$model")
        profiles=$PROFILES/${cluster//\//-}-$round
        if [ "$up" != "$cluster" ]; then
            "$LAB" down
            rate=${EDGECUT_LAB_RATE:-}
            [[ $cluster != *@* ]] || rate=${cluster#*@}
            EDGECUT_LAB_RATE=$rate "$LAB" up "$HERE/${cluster%@*}.toml"
            up=$cluster
            if [ -n "$CALIBRATE" ]; then
                inside devices --cluster "$("$LAB" cluster)" --calibrate --links "$profiles/links.csv" \
                    --calibration "$profiles/calibration.csv" ${ENGINE:+--engine "$ENGINE"} >"$WORK/calibration.out" 2>&1 ||
                    tail -3 "$WORK/calibration.out" >&2
            fi
        fi
        file=$("$LAB" cluster)
        rm -f "$WORK"/*.json*
        targets=()
        for triple in "${TRIPLES[@]}"; do
            [[ $triple == "$subject":* ]] || continue
            target=${triple#"$subject":}
            echo "measure: round $round: $cluster, $model, $target" >&2
            IFS=+ read -r -a flags <<<"${target/#latency/}"
            # Other ratios are compared on the same operators.
            [[ $target != *--ratios* ]] || [ ! -e "$WORK/plan-latency.json" ] || flags+=(--like "$WORK/plan-latency.json")
            if plan "$WORK/plan-$target.json" "${flags[@]}"; then targets+=("$target"); else tail -3 "$WORK/plan.err" >&2; fi
        done
        [ ${#targets[@]} -gt 0 ] || continue
        # Every device alone: the best of them by its own measurement is what a plan must beat.
        IFS=' ' read -r -a devices <<<"${ALONE:-}"
        [ ${#devices[@]} -gt 0 ] || mapfile -t devices < <(python3 -c 'import json, sys
for d in json.load(open(sys.argv[1]))["devices"]: print(d["server"] + "/" + d["device"])' "$WORK/plan-${targets[0]}.json")
        for device in "${devices[@]}"; do
            plan "$WORK/alone-${device//\//-}.json" --no-split --rehearse 0 --pin "*=$device" || true
        done
        # All in turn, so that what disturbs the machine for a while disturbs all alike.
        for ((turn = 1; turn <= TURNS; turn++)); do
            for which in "$WORK"/plan-*.json "$WORK"/alone-*.json; do
                how=(--repeat "$REPEAT")
                # Enough results for most of them to come while the pipeline is full.
                if [[ $which == *throughput* ]]; then
                    flight=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1])).get("in_flight") or 1)' "$which")
                    how=(--repeat $((REPEAT * 4 + flight * 6)) --throughput)
                fi
                inside run "$which" --no-check --no-replan "${how[@]}" --format json >"$which.run-$turn" 2>/dev/null || rm -f "$which.run-$turn"
            done
        done
        for target in "${targets[@]}"; do
            outputs=equal
            inside run "$WORK/plan-$target.json" --repeat 1 >"$WORK/check.out" 2>&1 || outputs="$(tail -1 "$WORK/check.out" | tr ',' ';')"
            python3 - "$OUT" "$WORK" "$cluster" "$model" "$target" "$round" "$outputs" <<'END'
import csv, glob, json, statistics, sys

out, work, *head, outputs = sys.argv[1:]

def runs(plan):
    return [json.load(open(name)) for name in sorted(glob.glob(plan + ".run-*"))]

def latency(of):
    return statistics.median(run.get("interval_us") or run["latency"]["median_us"] for run in of)

name = f"{work}/plan-{head[2]}.json"
plan, ran = json.load(open(name)), runs(name)
alone = {name: latency(runs(name)) for name in glob.glob(work + "/alone-*.json") if runs(name)}
predicted = plan["predicted"]["interval_us" if "throughput" in head[2] else "latency_us"]
measured = latency(ran)
best = min(alone, key=alone.get) if alone else None
# The device whose memory was foretold the worst.
memory = [m for run in ran for m in run["memory"]]
worst = max(memory, key=lambda m: abs(m["predicted_load_bytes"] / m["peak_bytes"] - 1))
row = head + [
    sum(1 for d in plan["devices"] if d["order"]), len(plan.get("splits", [])), round(predicted), round(measured),
    f"{predicted / measured - 1:+.4f}",
    best.split("alone-")[1].removesuffix(".json") if best else "", round(alone[best]) if best else "",
    f"{alone[best] / measured:.3f}" if best else "",
    worst["device"], worst["predicted_load_bytes"], worst["peak_bytes"], worst["limit_bytes"],
    f"{worst['predicted_load_bytes'] / worst['peak_bytes'] - 1:+.4f}", outputs,
]
with open(out, "a") as file:
    csv.writer(file, lineterminator="\n").writerow(row)
END
        done
    done
    "$LAB" down
done

# Of each triple the median over the rounds; of all triples the median and the worst.
python3 - "$OUT" <<'END'
import csv, statistics, sys

rows = list(csv.DictReader(open(sys.argv[1])))
errors, memory = [], []
for key in dict.fromkeys((r["cluster"], r["model"], r["target"]) for r in rows):
    of = [r for r in rows if (r["cluster"], r["model"], r["target"]) == key]
    middle = lambda name: statistics.median(float(r[name] or "nan") for r in of)
    print(f"{key[0]:12} {key[1]:18} {key[2]:22} predicted {middle('predicted_us') / 1e3:7.1f} ms, measured "
          f"{middle('measured_us') / 1e3:7.1f} ms, off by {middle('error'):+.1%}, {middle('speedup'):.2f} x, {of[0]['outputs']}")
    errors.append(abs(middle("error")))
    memory.append(max((float(r["memory_error"]) for r in of), key=abs))
if errors:
    print(f"{len(errors)} triples: latency off by {statistics.median(errors):.1%} (median), {max(errors):.1%} (worst); "
          f"peak memory by {max(map(abs, memory)):.1%} (worst)")
END

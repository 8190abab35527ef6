#!/usr/bin/env bash
# Four policies on forty KernelBench problems, and KernelBench's own word on twelve winners meanwhile.
#
#     forty_on_gpus.sh KERNELBENCH OUT [JOBS]
#
# KERNELBENCH is a checkout with its src/. As soon as twelve runs of the first policy have gained
# something, these are evaluated by KernelBench on the last GPU, in the same session: the lock of that
# GPU is held while one is timed (kernelbench_eval.py). Three jobs a GPU keep it busy. Four H100s take 27
# minutes; interrupted, the same line goes on. OUT/results.md has the tables,
# OUT/kernelbench_eval.json what KernelBench says.
set -euo pipefail
kernelbench=$(realpath "$1") out=$2
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
jobs=${3:-$((3 * gpus))}
here=$(dirname "$(realpath "$0")")
policies="" limits="confirm_seconds=2,shapes=1"
for policy in kernelblaster coder_judge random best_of_n; do policies+=",$policy[$limits]"; done

improved() {
    python3 - "$out" <<'P'
import json, pathlib, sys
found = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("runs/kernelblaster-*/seed-0/*/result.json")):
    result = json.loads(path.read_text())
    if result["outcome"] == "improved" and result["best_us"] < 20_000:
        found.append(path.parent)
print(*found[:12], sep="\n", end="\n" if found else "")
P
}
evaluate() {
    while [ "$(improved | wc -l)" -lt 12 ]; do sleep 5; done
    CUDA_VISIBLE_DEVICES=$((gpus - 1)) python3 "$here/../kernelbench/kernelbench_eval.py" \
        --kernelbench "$kernelbench" --runs $(improved) --jobs 6 \
        --out "$out/kernelbench_eval.json" >"$out/kernelbench_eval.log" 2>&1
}
mkdir -p "$(dirname "$out")"
evaluate &
evaluation=$!
python3 -m kernelblaster bench "$kernelbench" --policy "${policies#,}" --knowledge each \
    --tasks "$(cat "$here/kernelbench_forty_quick.txt")" --budget evaluations=3 --device cuda \
    --jobs "$jobs" --out "$out"
# Where fewer than twelve gained anything the wait above has no end.
[ "$(improved | wc -l)" -ge 12 ] || kill "$evaluation"
wait "$evaluation" || true
python3 "$here/gains_of_bench.py" "$out"

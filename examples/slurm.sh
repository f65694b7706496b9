#!/usr/bin/env bash
# A raysim run on the nodes of a Slurm job, whose own Ray cluster it starts and ends:
#
#     sbatch --nodes=2 examples/slurm.sh DIR CONFIG [KEY=VALUE ...]
#
# DIR is the run's directory; submitted again with it, the run goes on from its newest checkpoint. Two minutes before the
# time is up, the run is told to end after its round and to write one. Add --gpus-per-node=N for GPUs, and what your site
# needs to find Python: `module load ...`, `source .venv/bin/activate`. With RAYSIM_IMAGE=raysim.sif in the environment,
# Ray and raysim are those of this image of Apptainer's.
#SBATCH --job-name=raysim
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@120
set -euo pipefail
directory=$1 config=$2
shift 2

inside=()
if [ -n "${RAYSIM_IMAGE:-}" ]; then   # --nv: with the node's driver for its GPUs
    inside=(apptainer exec ${SLURM_GPUS_ON_NODE:+--nv} "$RAYSIM_IMAGE")
fi

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
on() { srun --overlap --nodes="$1" --ntasks="$1" --cpus-per-task="$SLURM_CPUS_PER_TASK" --nodelist="$2" "${@:3}"; }
every=$(IFS=,; echo "${nodes[*]}")
first=$(on 1 "${nodes[0]}" hostname --ip-address)
address=${first%% *}:$((20000 + SLURM_JOB_ID % 10000))   # another job on this node has another port
files=/tmp/ray-$SLURM_JOB_ID                              # Ray's sockets and logs, for no other user's eyes
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN                 # without the token of this job nobody joins its cluster

wait_for_nodes() {   # two minutes long
    for _ in {1..120}; do
        [ "$("${inside[@]}" ray status --address "$address" 2>/dev/null | grep -c '^ *1 node_')" -ge "$1" ] && return
        sleep 1
    done
    echo "the cluster at $address has fewer than $1 nodes after two minutes" >&2
    exit 1
}

# `ray stop` would end every Ray of yours on these nodes, other jobs' too; the end of its step ends just this one
# shellcheck disable=SC2329  # the trap calls it
end() {
    mapfile -t steps < <(jobs -p)
    kill -- "${steps[@]/#/-}" 2>/dev/null || true   # with what they started
    wait
    on "${#nodes[@]}" "$every" rm -rf "$files"
}
trap 'end' EXIT
set -m   # else the run, in the background, would not hear SIGINT
# a job that was killed and queued again has its number still; where the folder is another user's, this ends here
on "${#nodes[@]}" "$every" rm -rf "$files"
on "${#nodes[@]}" "$every" mkdir -m 700 "$files"
start=("${inside[@]}" ray start --block --disable-usage-stats --num-cpus="$SLURM_CPUS_PER_TASK")
# Ray does not see the memory limit of a job. Slurm counts in MiB; 0 is all memory of the node.
mib=${SLURM_MEM_PER_NODE:-$((${SLURM_MEM_PER_CPU:-0} * ${SLURM_CPUS_ON_NODE:-$SLURM_CPUS_PER_TASK}))}
store=$((mib * 2 ** 20 * 3 / 10))   # Ray's own part for its object store
((mib == 0)) || start+=(--memory="$((mib * 2 ** 20 - store))" --object-store-memory="$store")
on 1 "${nodes[0]}" "${start[@]}" --head --node-ip-address="${address%:*}" --port="${address#*:}" \
    --include-dashboard=false --temp-dir="$files" &
wait_for_nodes 1
for node in "${nodes[@]:1}"; do
    on 1 "$node" "${start[@]}" --address="$address" &
done
wait_for_nodes "${#nodes[@]}"

"${inside[@]}" raysim run --resume --out "$directory" "$config" resources.address="$address" "$@" &
run=$!
trap 'kill -INT "$run"' USR1
status=0
wait "$run" || status=$?
while kill -0 "$run" 2>/dev/null; do   # the signal ends the wait, not the run
    status=0
    wait "$run" || status=$?
done
exit "$status"

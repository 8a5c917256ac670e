package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// contracts is a rank that reads what frameworks read, as they do, and meets all others where each of them has the
// ranks meet. It fails like they would.
const contracts = `
import json, os, socket, sys, time

env = os.environ
rank, size, local = int(env["RANK"]), int(env["WORLD_SIZE"]), int(env["LOCAL_RANK"])

def same(want, *names):
    for name in names:
        if name in env:
            assert env[name] == str(want), f"{name}={env[name]}, not {want}"

# torchrun: whoever it starts finds all of these.
assert env["TORCHELASTIC_RUN_ID"] and env["TORCHELASTIC_USE_AGENT_STORE"] == "False"
assert (env["TORCHELASTIC_RESTART_COUNT"], env["TORCHELASTIC_MAX_RESTARTS"], env["ROLE_NAME"]) == ("0", "0", "default")
same(2, "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
same(rank, "ROLE_RANK"); same(size, "ROLE_WORLD_SIZE")

# accelerate and Hydra's users take the first that is there of these: none may say something else.
same(rank, "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "HOROVOD_RANK")
same(size, "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "HOROVOD_SIZE")
same(local, "LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK")
same(2, "LOCAL_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE")

# Lightning: devices times nodes is the world; under Slurm's variables it would ask Slurm instead.
assert int(env["LOCAL_WORLD_SIZE"]) * int(env["GROUP_WORLD_SIZE"]) == size
assert env["GROUP_RANK"] == env["NODE_RANK"] == str(rank // 2)
assert not [name for name in env if name.startswith("SLURM_")], "Slurm's variables leak"

# DeepSpeed: as from its own launcher.
same(rank // 2, "CROSS_RANK"); same(2, "CROSS_SIZE")

# JAX and TensorFlow.
assert (env["JAX_PROCESS_ID"], env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_COUNT"]) == (str(rank), str(size), str(size))
tf = json.loads(env["TF_CONFIG"])
workers = tf["cluster"]["worker"]
assert tf["task"] == {"type": "worker", "index": rank} and len(set(workers)) == size, tf

# Where they meet: whose place it is listens there, on its own address, and all ranks come.
def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)

places = {"torch": (0, (env["MASTER_ADDR"], int(env["MASTER_PORT"]))), "jax": (0, split(env["JAX_COORDINATOR_ADDRESS"]))}
places.update((f"tf {r}", (r, split(address))) for r, address in enumerate(workers))
assert len(set(place for _, place in places.values())) == len(places), places
listeners = {name: socket.create_server(place) for name, (owner, place) in places.items() if owner == rank}
peers = []
for name, (owner, place) in places.items():
    for _ in range(300):
        try:
            peers.append(socket.create_connection(place, 5))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    else:
        sys.exit(f"{name}: nobody at {place}")
    peers[-1].sendall(b"%d\n" % rank)
for name, listener in listeners.items():
    listener.settimeout(30)
    came = sorted(int(listener.accept()[0].makefile().readline()) for _ in range(size))
    assert came == list(range(size)), f"{name}: {came}"
print(f"{env['HOROVOD_HOSTNAME']} rank {rank} met all")
`

// TestContracts: what torchrun, accelerate, Lightning, DeepSpeed, JAX and TensorFlow programs find is consistent,
// whatever the launcher's own environment holds, and leads to ports that are free and that ranks of both hosts reach.
func TestContracts(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	cmd, stdout, stderr := c.Command("-np", "4", "-H", "host1:2,host2:2", "--tf-config", "--no-tag-output", e2etest.Python, "-c", contracts)
	cmd.Env = append(cmd.Env, "SLURM_NTASKS=7", "SLURM_JOB_NAME=train", "RANK=9", "WORLD_SIZE=9", "MASTER_ADDR=nowhere", "NODE_RANK=9",
		"OMPI_COMM_WORLD_RANK=9", "MV2_COMM_WORLD_RANK=9", "MPI_LOCALRANKID=9", "PMI_RANK=9", "TF_CONFIG={}", "JAX_COORDINATOR_ADDRESS=nowhere:1")
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	slices.Sort(lines)
	var want []string
	for rank := range 4 {
		want = append(want, fmt.Sprintf("host%d rank %d met all", 1+rank/2, rank))
	}
	if err != nil || !slices.Equal(lines, want) {
		t.Errorf("%v: got %q, want %q\n%s", err, lines, want, stderr)
	}
}

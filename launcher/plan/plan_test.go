package plan_test

import (
	"errors"
	"slices"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

func TestTooFewSlots(t *testing.T) {
	_, err := plan.Place([]hosts.ListedHost{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}, 5, plan.Policy{})
	var se *plan.SlotsError
	if !errors.As(err, &se) || se.Slots != 4 || err.Error() != "place ranks: -np 5 needs 5 slots, but a:2,b:2 has 4" {
		t.Errorf("got %v", err)
	}
}

// TestCrossRanks is the example of Horovod's documentation: a:2,b:1.
func TestCrossRanks(t *testing.T) {
	p, err := plan.Place([]hosts.ListedHost{{Name: "a", Slots: 2}, {Name: "b", Slots: 1}}, 3, plan.Policy{})
	must.Do(t, err)
	for rank, want := range []plan.PlacedRank{
		{Rank: 0, LocalRank: 0, CrossRank: 0, CrossSize: 2, Host: 0},
		{Rank: 1, LocalRank: 1, CrossRank: 0, CrossSize: 1, Host: 0},
		{Rank: 2, LocalRank: 0, CrossRank: 1, CrossSize: 2, Host: 1},
	} {
		if got := p.Ranks[rank]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestUserEnv(t *testing.T) {
	left := []string{"PBS_NODEFILE=/n", "LSB_JOBID=1", "FLUX_URI=u", "PALS_RANKID=0", "I_MPI_HYDRA_X=1", "I_MPI_INFO_X=1", "I_MPI_PMI_LIBRARY=/s", "I_MPI_MPIRUN=m", "SSH_CONNECTION=a", "GORUN_RANK=1", "GORUN_ENCRYPT=1",
		"HOROVOD_GLOO_RENDEZVOUS_ADDR=a", "HOROVOD_ELASTIC=1", "UV_INDEX=u", "UV_INDEX_MINE_PASSWORD=p", "UV_DEFAULT_INDEX=u", "UV_PUBLISH_TOKEN=t", "PIP_INDEX_URL=u", "PIP_EXTRA_INDEX_URL=u"}
	mine := []string{"I_MPI_ROOT=/i", "I_MPI_FABRICS=shm", "HOROVOD_GLOO_TIMEOUT_SECONDS=9", "HOROVOD_GLOO_IFACE=e", "LS_COLORS=x", "UV_NO_CACHE=1", "PIP_CERT=/c",
		"BASH_FUNC_module%%=() {  eval a=b\n}", "GORUN_OF_MINE=1"}
	if got := plan.UserEnv(slices.Concat(left, mine), false); !slices.Equal(got, mine) {
		t.Errorf("of what launchers and schedulers leave: %v, want %v", got, mine)
	}
	in := []string{"A=1", "RANK=7", "SLURM_JOB_ID=3", "HOME=/h", "PATH=/bin", "SSH_AUTH_SOCK=/x", "GOVC_PASSWORD=p", "HOROVOD_TIMELINE=t", "=bad", "XDG_CACHE_HOME=/c", "CUDA_VISIBLE_DEVICES=3", "ROCR_VISIBLE_DEVICES=1", "ZE_AFFINITY_MASK=0"}
	if got, want := plan.UserEnv(in, true), []string{"A=1", "PATH=/bin", "HOROVOD_TIMELINE=t"}; !slices.Equal(got, want) {
		t.Errorf("remote: got %v, want %v", got, want)
	}
	if got, want := plan.UserEnv(in, false), []string{"A=1", "HOME=/h", "PATH=/bin", "SSH_AUTH_SOCK=/x", "HOROVOD_TIMELINE=t", "XDG_CACHE_HOME=/c", "CUDA_VISIBLE_DEVICES=3", "ROCR_VISIBLE_DEVICES=1", "ZE_AFFINITY_MASK=0"}; !slices.Equal(got, want) {
		t.Errorf("local: got %v, want %v", got, want)
	}
}

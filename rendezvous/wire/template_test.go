package wire_test

import (
	"reflect"
	"testing"

	"gorun/rendezvous/wire"
)

func TestFill(t *testing.T) {
	r := wire.Rank{Rank: 5, LocalRank: 1}
	got := r.Fill([]string{"numactl", "-N", "{local_rank}", "--out={rank}.{gpu}", "{{x}"}, "GPU-7")
	if want := []string{"numactl", "-N", "1", "--out=5.GPU-7", "{x}"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for word, ok := range map[string]bool{"{rank}": true, "a{{b}": true, "": true, "{gpu}{local_rank}": true, "{node}": false, "{rank": false, "{": false, "{{{x}": false} {
		if err := wire.CheckTemplate(word, "{rank}", "{local_rank}", "{gpu}"); (err == nil) != ok {
			t.Errorf("%q: %v", word, err)
		}
	}
}

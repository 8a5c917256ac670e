package wire

import (
	"fmt"
	"strings"
	"testing"
)

func TestCalled(t *testing.T) {
	for _, test := range []struct{ kind, name, what, called string }{
		{"allreduce", "allreduce.x", "allreduce", "x"},
		{"allreduce", "grouped_allreduce.x", "grouped_allreduce", "x"},
		{"allgather", "allgather.x_1of2", "allgather of 2 tensors", "x"},
		{"allgather", "allgather.x_of", "allgather", "x_of"},
		{"allgather", "allgather.x_1of2b", "allgather", "x_1of2b"},
		{"allgather", "allgather.x_01of2", "allgather", "x_01of2"},
		{"allreduce", "x_1of2", "allreduce", "x_1of2"},
		{"allreduce", "allgather.x", "allreduce", "allgather.x"}, // another rank's name
		{"allreduce", "layer.weight", "allreduce", "layer.weight"},
		{"join", "join", "join", "join"},
	} {
		if what, called := (&Waiting{Kind: test.kind, Name: test.name}).Called(); what != test.what || called != test.called {
			t.Errorf("%s %q is called %s %q, want %s %q", test.kind, test.name, what, called, test.what, test.called)
		}
	}
}

func TestCrossings(t *testing.T) {
	op := func(kind, name string, missing ...Missing) Waiting {
		return Waiting{Kind: kind, Name: name, Missing: missing}
	}
	on := func(host string, ranks ...int) Missing { return Missing{host, ranks} }
	inSet := op("allgather", "allgather.x", on("a", 0))
	inSet.Group = 3
	for _, test := range []struct {
		name string
		ops  []Waiting
		want string
	}{
		{"two ranks", []Waiting{op("allreduce", "allreduce.x", on("b", 1)), op("allgather", "allgather.x", on("a", 0))},
			"allreduce: [{a [0]}], allgather: [{b [1]}]"},
		{"three", []Waiting{op("allreduce", "allreduce.x", on("b", 1, 2)), op("allgather", "allgather.x", on("a", 0), on("b", 2)), op("broadcast", "broadcast.x", on("a", 0), on("b", 1))},
			"allreduce: [{a [0]}], allgather: [{b [1]}], broadcast: [{b [2]}]"},
		{"one of them in both", []Waiting{op("allreduce", "allreduce.x", on("b", 1)), op("allgather", "allgather.x", on("a", 0)), op("allreduce", "allreduce.y", on("b", 1))},
			"allreduce: [{a [0]}], allgather: [{b [1]}]"},
		{"one after the other", []Waiting{op("broadcast", "broadcast.x", on("b", 1)), op("allreduce", "allreduce.x", on("b", 1))}, ""},
		{"a rank that is ahead", []Waiting{op("broadcast", "broadcast.x", on("b", 1, 2)), op("allreduce", "allreduce.x", on("b", 2))}, ""},
		{"data under way", []Waiting{op("broadcast", "broadcast.x"), op("allreduce", "allreduce.x", on("b", 2))}, ""},
		{"other names", []Waiting{op("allreduce", "allreduce.x", on("b", 1)), op("allgather", "allgather.y", on("a", 0))}, ""},
		{"names of another kind", []Waiting{op("allreduce", "a.x", on("b", 1)), op("allgather", "b.x", on("a", 0))}, ""},
		{"another set", []Waiting{op("allreduce", "allreduce.x", on("b", 1)), inSet}, ""},
		{"groups", []Waiting{op("allgather", "allgather.x_1of2", on("b", 1)), op("allgather", "allgather.x_1of3", on("a", 0))},
			"allgather of 2 tensors: [{a [0]}], allgather of 3 tensors: [{b [1]}]"},
	} {
		var got []string
		for _, crossing := range Crossings(test.ops) {
			for _, c := range crossing {
				what, _ := test.ops[c.Op].Called()
				got = append(got, fmt.Sprintf("%s: %v", what, c.Ranks))
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

package main

import (
	"reflect"
	"strings"
	"testing"

	"gorun/topology"
)

// TestBindingArgs reads what horovodrun's users write for mpirun.
func TestBindingArgs(t *testing.T) {
	for _, tc := range []struct {
		flags  []string
		to     topology.BindTo
		report bool
		idle   string
	}{
		{[]string{"--binding-args=-bind-to socket"}, topology.BindSocket, false, ""},
		{[]string{"--binding-args", "--bind-to=core --report-bindings"}, topology.BindCore, true, ""},
		{[]string{"--binding-args", "-bind-to none -map-by slot -rf file"}, topology.BindNone, false, "-map-by slot -rf file"},
		{[]string{"--binding-args", "-bind-to socket", "--bind-to", "numa"}, topology.BindNUMA, false, ""},
		{[]string{"--binding-args=-bind-to"}, "", false, "-bind-to"},
		{nil, "", false, ""},
	} {
		err := parse(t, append(append([]string{"gorun"}, tc.flags...), "true"), func(o *jobFlags) {
			bind, err := readBind(o)
			args := readBindingArgs(o)
			if err != nil || bind.To != tc.to || args.report != tc.report || !reflect.DeepEqual(args.idle, strings.Fields(tc.idle)) && tc.idle != "" {
				t.Errorf("%q: %v, %+v, %+v", tc.flags, err, bind, args)
			}
		})
		if err != nil {
			t.Errorf("%q: %v", tc.flags, err)
		}
	}
	err := parse(t, []string{"gorun", "--binding-args", "-bind-to board", "true"}, func(o *jobFlags) {
		if _, err := readBind(o); err == nil || !strings.Contains(err.Error(), "--binding-args: ") {
			t.Errorf("a place that there is not: %v", err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

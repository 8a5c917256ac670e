package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/urfave/cli/v2"

	"gorun/rendezvous/wire"
)

// madeBy names the flag that validate makes an option of a job from, where the option is not that flag's field itself.
var madeBy = map[string]string{
	"Wrapper":  "rank-wrapper",
	"Shim":     "no-horovod-shim",
	"GPUs":     "gpus",
	"IfAlone":  "strict",
	"NICs":     "network-interfaces",
	"Topology": "topology",
	"Bind":     "bind-to",
	"Readers":  "stdin",
}

// internal are options that no flag fills.
var internal = []string{"TimeScale", "Blind"} // for tests

// TestJobOptionsHaveFlags: a flag fills every option of a job.
func TestJobOptionsHaveFlags(t *testing.T) {
	o := new(jobFlags)
	flags := o.table()
	filled := fieldsOf(flags)
	options := reflect.ValueOf(&o.JobOptions).Elem()
	for i := range options.NumField() {
		name := options.Type().Field(i).Name
		flag, made := madeBy[name]
		switch {
		case slices.Contains(internal, name):
		case filled[options.Field(i).UnsafeAddr()] == made:
			t.Errorf("JobOptions.%s: it is filled by one flag, or made from one that madeBy names", name)
		case made && findFlag(flags, flag) == nil:
			t.Errorf("JobOptions.%s: there is no flag --%s", name, flag)
		}
		delete(madeBy, name)
	}
	for name := range madeBy {
		t.Errorf("wire.JobOptions has no field %s", name)
	}
}

// TestFieldsHaveFlags: a flag fills every field of the options of every command, and every flag has one.
func TestFieldsHaveFlags(t *testing.T) {
	launch, bench, topo, doctor, agent := new(jobFlags), new(benchFlags), new(topoFlags), new(doctorFlags), new(agentFlags)
	for _, tc := range []struct {
		options any
		flags   []cli.Flag
	}{
		{launch, launch.table()},
		{bench, bench.table()},
		{topo, topo.table()},
		{doctor, doctor.table()},
		{agent, agent.table()},
	} {
		filled := fieldsOf(tc.flags)
		for _, f := range tc.flags {
			if fieldOf(f) == nil && f.Names()[0] != "set" { // which sets other flags
				t.Errorf("%T: --%s fills no field", tc.options, f.Names()[0])
			}
		}
		_, isLaunch := tc.options.(*jobFlags)
		eachField(reflect.ValueOf(tc.options).Elem(), isLaunch, func(name string, field reflect.Value) {
			if !filled[field.UnsafeAddr()] {
				t.Errorf("%T: no flag fills %s", tc.options, name)
			}
		})
	}
}

// fieldsOf returns the addresses of the fields that flags fill.
func fieldsOf(flags []cli.Flag) map[uintptr]bool {
	out := map[uintptr]bool{}
	for _, f := range flags {
		if field := fieldOf(f); field != nil {
			out[reflect.ValueOf(field).Pointer()] = true
		}
	}
	return out
}

// eachField visits the fields of options and of the groups that they embed; those of launches only if shared.
func eachField(options reflect.Value, shared bool, visit func(name string, field reflect.Value)) {
	for i := range options.NumField() {
		switch f := options.Type().Field(i); {
		case f.Type == reflect.TypeFor[invocation]() || f.Type == reflect.TypeFor[wire.JobOptions]() || f.Type.Kind() == reflect.Map:
		case f.Type == reflect.TypeFor[jobFlags]() && !shared:
		case f.Anonymous:
			eachField(options.Field(i), shared, visit)
		default:
			visit(f.Name, options.Field(i))
		}
	}
}

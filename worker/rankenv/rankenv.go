// Package rankenv is the table of every environment variable that a daemon gives a rank.
//
// A rank inherits variables from its machine and from the user, and gorun adds the variables of the table: who the rank
// is, and what the frameworks that gorun stands in for would have set. Each variable belongs to a Contract, the
// launcher or the framework that defined it, and has a Rule, which decides who wins if the user sets the same one. The
// table is a function of Facts and does no I/O; package worker/ranks collects the facts. docs/reference/environment.md
// shows the table to users.
package rankenv

import (
	"slices"
	"strings"
)

// Contract is the program that defined a variable.
type Contract string

// The contracts.
const (
	Gorun      Contract = "gorun"
	Horovod    Contract = "Horovod"
	Torchrun   Contract = "torchrun"
	MPI        Contract = "MPI (PMI-1)"
	JAX        Contract = "JAX"
	TensorFlow Contract = "TensorFlow"
	Accelerate Contract = "accelerate"
	Launchers  Contract = "DeepSpeed, Lightning" // and others that count ranks by these names
	Python     Contract = "Python"
	OpenMP     Contract = "OpenMP"
	CUDA       Contract = "CUDA"
	NIC        Contract = "NCCL, Gloo, UCX, libfabric"
	Shell      Contract = "shell"
)

// Rule is what happens if the user sets a variable of the table.
type Rule int

// The rules, in the order in which Environment applies them.
const (
	// Place: the user's value for a program (-x) wins, one that is passed on from the shell does not.
	Place Rule = iota
	// Fixed: gorun's value wins.
	Fixed
	// Default: the user's value wins.
	Default
)

func (r Rule) String() string { return [...]string{"place", "fixed", "default"}[r] }

// Variable is one row of the table.
type Variable struct {
	Name     string
	Contract Contract
	Rule     Rule
	When     string // the condition, "" for always
	Note     string // what else its users should know

	holds func(*Facts) bool // nil for always
	value func(*Facts) string
}

// Table returns all variables.
func Table() []Variable { return slices.Clone(table) }

// Environment returns the environment of a rank: what it inherits, the variables of the table, and program, which are
// the variables that the user gave to its program. Of several values of one variable the last one counts.
func Environment(f Facts, inherited, program []string) []string {
	env := slices.Concat(inherited, f.set(Place, nil), program)
	f.userPath, _ = Lookup(env, "PYTHONPATH")
	f.programs, _ = Lookup(env, "PATH")
	env = append(env, f.set(Fixed, nil)...)
	return append(env, f.set(Default, env)...)
}

// Placed returns the variables that depend on nothing but the placement of a rank.
func Placed(f Facts) []string { return f.set(Place, nil) }

// Names returns the names of the variables that a rank gets by a rule.
func Names(f Facts, by Rule) []string {
	var names []string
	for _, kv := range f.set(by, nil) {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return names
}

// set returns the variables of a rule that env does not have.
func (f *Facts) set(by Rule, env []string) []string {
	var out []string
	for _, v := range table {
		if v.Rule != by || v.holds != nil && !v.holds(f) {
			continue
		}
		if _, taken := Lookup(env, v.Name); !taken {
			out = append(out, v.Name+"="+v.value(f))
		}
	}
	return out
}

// Lookup returns the last value of a variable.
func Lookup(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// session are what variables of a login, and of a job around this one, begin with.
var session = []string{"SSH_", "_=", "SHLVL=", "GORUN_"}

// Machine returns what a rank keeps of its daemon's environment: the machine's own variables, but not what came from
// the ssh session that started the daemon.
func Machine(env []string) []string {
	var out []string
	for _, kv := range env {
		if !slices.ContainsFunc(session, func(prefix string) bool { return strings.HasPrefix(kv, prefix) }) {
			out = append(out, kv)
		}
	}
	return out
}

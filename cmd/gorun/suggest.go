package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
)

// meantCommand gives the error of a job a hint if its program was not found because a command of gorun's was meant.
func meantCommand(err error, commands []*cli.Command) error {
	known, ok := errors.AsType[explained](err)
	rank, failed := known.(*failure.RankError)
	if !ok || !failed || rank.Code != 127 {
		return err
	}
	program, _, searched := strings.Cut(rank.Reason, ": not found in PATH")
	if _, here := os.Stat(program); here == nil || !searched || strings.Contains(program, " ") {
		return err
	}
	if slices.Contains(startWords, program) {
		rank.Hint = "gorun starts programs without such a word: gorun -np 4 python train.py"
	} else if meant := commandsLike(program, commands); len(meant) > 0 {
		rank.Hint = "did you mean gorun " + strings.Join(meant, " or gorun ") + "? What is not a command of gorun's is a program that it starts"
	}
	return err
}

// startWords are commands of other tools that start a program. gorun needs none.
var startWords = []string{"run", "start", "launch", "exec", "submit"}

// otherWords maps the names that other tools give their commands to gorun's.
var otherWords = map[string]string{
	"status": "ps", "list": "ps", "ls": "ps", "jobs": "ps", "queue": "ps", "squeue": "ps", "qstat": "ps",
	"cancel": "stop", "kill": "stop", "scancel": "stop", "qdel": "stop", "delete": "stop", "terminate": "stop",
	"log": "logs", "tail": "logs", "output": "logs", "watch": "top", "stats": "top", "monitor": "top",
	"check": "doctor", "diagnose": "doctor", "benchmark": "bench", "perf": "bench", "test": "bench",
	"topology": "topo", "lstopo": "topo", "daemon": "worker", "serve": "worker", "server": "worker", "agent": "worker",
	"hang": "why", "stuck": "why", "explain": "why", "stack": "stacks", "dump": "stacks", "py-spy": "stacks", "traceback": "stacks",
	"manual": "man", "completions": "completion", "connect": "attach", "dashboard": "web", "ui": "web",
}

// commandsLike returns the commands that a word may mean: the one that other tools call by it, or the ones that
// differ in one letter. The ones that lack only a letter of the word come first.
func commandsLike(word string, commands []*cli.Command) (names []string) {
	if command := otherWords[word]; command != "" {
		return []string{command}
	}
	for _, c := range commands {
		if !c.Hidden && typos(word, c.Name) == 1 {
			names = append(names, c.Name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return len(a) - len(b) })
	return names
}

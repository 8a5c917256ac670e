// Package stacks reads the stacks of processes that do not write them: the kernel's of the main thread, and Python's by
// py-spy. It disturbs no process.
package stacks

import (
	"strings"

	"gorun/worker/proc"
)

const (
	// mostFunctions and longestName bound what the kernel's stack takes in a message.
	mostFunctions = 64
	longestName   = 128
)

// Kernel returns the functions of the kernel that the main thread of a process is in, the innermost first; nil if it is
// in none, or the kernel does not show them to this user: it shows them to root alone.
func Kernel(pid int) []string {
	return parseKernel(proc.ReadOf(pid, "stack"))
}

// parseKernel reads lines such as "[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]".
func parseKernel(text string) (functions []string) {
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, "] ")
		name, _, has := strings.Cut(rest, "+0x")
		if !ok || !has || name == "" || len(name) > longestName || strings.ContainsFunc(name, odd) {
			continue // such as an address, which older kernels end with
		}
		if functions = append(functions, name); len(functions) == mostFunctions {
			break
		}
	}
	return functions
}

// odd reports whether a character is in no name of a function, compilers' suffixes included.
func odd(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '$'
}

// Package python holds the end-to-end tests of programs: the Python and C bindings on several hosts, other frameworks, stock
// Horovod, algorithms and compression by their flags.
package python

// Package python holds the end-to-end tests of programs: the Python and C bindings on several hosts, other frameworks, stock
// Horovod, algorithms and compression by their flags.
//
// A test starts a program of testdata, whose ranks check their own results, and reads that all of them ended well. One whose
// framework is not installed is skipped by name.
package python

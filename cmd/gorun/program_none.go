//go:build !gorund

package main

// hostProgram is empty: hosts get this binary itself.
var hostProgram []byte

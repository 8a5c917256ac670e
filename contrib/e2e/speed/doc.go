// Package speed holds the end-to-end tests that measure rates, of links, output and ranks. They are right only while nothing
// else runs, so make runs this package by itself.
package speed

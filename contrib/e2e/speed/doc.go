// Package speed holds the end-to-end tests that measure rates, of links, output and ranks. They are right only while nothing
// else runs, so make runs this package by itself.
//
// A test compares a rate with another one of the same run, such as the limit of a lab link, and fails beyond a factor. It
// logs its figures, which make test gathers.
package speed

// Package elastic holds the end-to-end tests of elastic jobs: what is lost, what is trained on with, who may come and go, and
// random faults in random jobs.
//
// A test starts a Training of package e2etest, takes hosts from it or adds some, and reads in its output that it continues
// from the right batch with the right ranks.
package elastic

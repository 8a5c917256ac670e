// Package elastic holds the end-to-end tests of elastic jobs: what is lost, what is trained on with, who may come and go, and
// random faults in random jobs.
package elastic

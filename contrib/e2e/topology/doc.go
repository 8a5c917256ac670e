// Package topology holds the end-to-end tests of what gorun finds out about hosts and paths, and of doctor.
//
// A test gives a lab of package e2etest slow or broken links, and compares what gorun topo, gorun doctor and -v print with
// what the lab was made of.
package topology

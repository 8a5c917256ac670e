// Package topology holds the end-to-end tests of what gorun finds out about hosts and paths, and of doctor.
package topology

// Package faults holds the end-to-end tests of what a job of fixed size does when processes, hosts, networks and launchers
// fail, and of its words when ranks wait for each other.
package faults

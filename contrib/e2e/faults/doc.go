// Package faults holds the end-to-end tests of what a job of fixed size does when processes, hosts, networks and launchers
// fail, and of its words when ranks wait for each other.
//
// A test cuts, slows down, pauses or kills something in a lab of package e2etest, and checks the error that users see, the
// exit code, and that nothing is left on the hosts.
package faults

// Package mpi holds the end-to-end tests of programs of MPICH and Open MPI, and of the operator that starts jobs by mpirun.
//
// They run on the hosts of a lab of package e2etest. A test compiles a program with the MPI library that it is about, and
// compares what the ranks print with what the library's own launcher gives them.
package mpi

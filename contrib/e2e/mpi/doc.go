// Package mpi holds the end-to-end tests of programs of MPICH and Open MPI, and of the operator that starts jobs by mpirun.
package mpi

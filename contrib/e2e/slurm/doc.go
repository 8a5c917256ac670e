// Package slurm holds the end-to-end tests in a cluster of Slurm: the distribution's slurmctld, slurmd and munge, with a
// slurmd on each host of a lab. Jobs are allocated by salloc and sbatch as users do it, and gorun starts its daemons by one
// step of srun, or by another scheduler's command, for which a stand-in does what its manual says.
//
// A test makes a cluster by newSlurm. The cluster's launcher is the login node, where slurmctld runs too.
package slurm

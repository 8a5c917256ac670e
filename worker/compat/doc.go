// Package compat serves ranks that were built for another launcher than gorun, and find each other by its services.
//
// MPI is the process manager of the MPI programs of a host (PMI-1, in package pmi). Horovod is the rendezvous of stock
// Horovod: a key-value service beside the first host's daemon, and in an elastic job a service for each rank, through
// which it leaves a world, hears of the next one, and finds its place there. Both belong to one daemon, whose loop
// alone calls their methods; ranks that want neither never ask.
package compat

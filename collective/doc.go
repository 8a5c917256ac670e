// Package collective is the engine: the ranks of a host hand it their parts of an operation, engines of
// different hosts agree on what runs, reduce, exchange segments and hand every rank its result.
//
// Words. A rank is one framework process. A host has one engine and any number of ranks. The world is
// the ordered hosts of one epoch; a group is a subset of its ranks, and a position is a host's place in
// the order of a group. A chunk is one position's share of a schedule's step; a segment is what is sent
// and reduced at once. An operation is known by its group and name; its parts may be submitted in any
// order and on any rank at any time.
//
// How an operation goes:
//
//  1. Submit collects the parts of this host's ranks. The last one makes the host ready: it tells every
//     other host of the group what its ranks submitted (negotiate.go, message.go). There is no
//     coordinator and no cycle: one message per pair of hosts, sent at once.
//  2. When all hosts are ready and agree, the operation starts: it lays out its schedule (package
//     schedule; layout.go) and queues what it can send (exec.go). If they disagree, every rank gets the same error.
//     A small allreduce is over here: the parts came with what the hosts said (carry.go).
//  3. Segments that arrive are reduced or placed by the goroutine that read them (receive.go), and set free what
//     waits for them. No goroutine belongs to an operation: any number of them run at once.
//  4. When nothing is missing, ranks are told; those whose memory is still being sent from are told when
//     the peers have it.
//
// On one host alone there is nothing to negotiate and nothing to send: the workers of Run reduce slices
// side by side, small operations run on the goroutine that submits the last part (local.go).
//
// Groups are made and removed by all ranks of the world in an operation of their own (groups.go), which gives
// them the same number everywhere.
//
// Goroutines: Run owns the workers and waits for them. Everything else runs on the callers' goroutines:
// sessions call Submit, the link's streams call Place, Deliver, Prepare and Acked. Lock order: Engine.mu
// before op.mu; neither is held while a kernel runs (but for the few bytes of carry.go), a segment is sent or
// a client is told.
//
// A program that wants collectives between processes of its own makes an Engine and a link.Mesh (or another Transport) in
// each, calls SetWorld with the same hosts everywhere, and Submit for each rank; a rank of a gorun job uses
// worker/session.Rank instead, and leaves all that to its daemon.
//
// The engine does not know membership or processes, opens no connection, retries nothing, and decides
// nothing about a host that is silent.
package collective

// Package collective is the engine: the ranks of a host submit their contributions to an operation, engines of
// different hosts agree on what runs, reduce, exchange segments and give every rank its result.
//
// Words. A rank is one framework process. A host has one engine and any number of ranks. The world is
// the ordered hosts of one epoch; a group is a subset of its ranks, and a position is a host's place in
// the order of a group. A chunk is one position's share of a schedule's step; a segment is what is sent
// and reduced at once. An operation is known by its group and name; its contributions may be submitted in any
// order and on any rank at any time.
//
// The life of an operation, in the order in which its files are best read:
//
//  1. Submit takes the contribution of one of this host's ranks (kind.go, request.go, validate.go, submit.go).
//  2. Declare: the last one makes the host ready. It sends every other host of the group what its ranks submitted
//     (readiness.go, readiness_input.go, ballot.go, message.go). There is no coordinator and no cycle:
//     one message per pair of hosts, sent at once. A rank that joined contributes zeros without being asked (join.go);
//     in a pause nothing is declared (pause.go).
//  3. Decide: when all hosts are ready and agree, the operation starts. If they disagree, every rank gets the same
//     error (mismatch.go).
//  4. Start: the operation gets a strategy, which lays out its memory, its results and the steps of a schedule
//     (op.go, start.go, registry.go, package schedule). A small allreduce is over here: its contributions came with the
//     ready messages (strategy_inline.go).
//  5. Segments go to other hosts and come from them (segment.go, run.go).
//  6. Deliver: the goroutine that read a segment reduces or places it, as the strategy says, and queues what waits for
//     it. No goroutine belongs to an operation: any number of them run at once.
//  7. Complete: when nothing is missing, ranks get their results; those whose memory is still being sent from get
//     theirs when the peers have it (life.go).
//
// A strategy is how an operation is carried out: the ring, recursive doubling, an exchange, and so on. Each is one
// file, strategy_*.go, with an entry in registry.go; the interface is in op.go. The op knows when something happens to a segment,
// the strategy knows what. Strategies are files here and no package of their own: they work on the memory, the groups
// and the segments of an op, some thirty names that nothing else needs to see.
//
// The negotiation (readiness) reports which operations start or fail, and strategies do not depend on how it decides.
//
// On one host alone there is nothing to negotiate and nothing to send: the workers of Run reduce slices
// side by side, small operations run on the goroutine that submits the last contribution (local.go, workers.go).
//
// Groups are made and removed by all ranks of the world in an operation of their own (groups.go, directory.go), which
// gives them the same number everywhere.
//
// Goroutines: Run owns the workers and waits for them. Everything else runs on the callers' goroutines:
// sessions call Submit, the link's streams call Place, Deliver, Prepare and Acked. Lock order: Engine.mu
// before op.mu; neither is held while a kernel runs (except for the few bytes of inline.go), a segment is sent or
// a client is notified.
//
// Budget of an allreduce of 64 KiB between two hosts with a rank each. A host's daemon is woken by its rank, and by the
// message of the other host, which carries the contribution; it wakes its rank. That is three wake-ups in a row, one
// message each way, and five copies of the tensor: to the socket and out of it, the reduction, and, for a tensor in
// ordinary memory, to the arena and back. The daemon makes 13 system calls (strace -c, per operation): one writev,
// readv and send each, four reads, two of them in vain, three looks at the poller, one or two futexes, and a nanosleep
// of Go's monitor. Its threads sleep 1.9 times, and it takes 100 to 115 µs of CPU time. Before contributions came with
// the declaration there were two messages each way, one after the other: its threads slept 3.5 to 4.3 times, for 136
// to 163 µs of CPU time.
//
// A program that wants collectives between processes of its own makes an Engine and a link.Mesh (or another Transport)
// in each, calls SetWorld with the same hosts everywhere, and Submit for each rank; a rank of a gorun job uses
// worker/rank instead, and leaves all that to its daemon.
//
// The engine does not know membership or processes, opens no connection, retries nothing, and decides
// nothing about a host that is silent.
package collective

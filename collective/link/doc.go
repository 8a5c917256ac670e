// Package link joins two daemons with a resumable session: segments travel on any of several streams, carry sequence
// numbers, are acknowledged, and are kept until the peer has them. The link repairs a broken stream by itself; the
// layers above do not notice. PROTOCOL.md describes the bytes.
//
// How a segment travels:
//
//  1. Send queues it (link.go). Small segments have a queue of their own that goes first, and a stream of their own;
//     within a queue Send determines the order. Any idle stream takes the next segment, so that a slow stream takes
//     fewer. If a stream is idle, Send writes a small segment itself, as far as the socket accepts it.
//  2. The stream numbers it, calls Owner.Prepare and writes header and payload with one writev (transmit.go). There is
//     no order across streams.
//  3. The peer's stream reads the header, drops a duplicate, asks Handler.Place for the destination, reads the payload
//     into it, records the number and calls Handler.Deliver (receive.go).
//  4. Acknowledgements are part of every header that goes back, or travel by themselves when there is none (ack.go).
//     The acknowledged segment returns to its Owner.
//
// How a stream is replaced (attach.go): both sides prove that they hold the job's key (handshake.go). Then the side
// with the lower id stops its old stream of the same index, waits until no goroutine uses it any more, and sends what
// it has received; the other side does the same and answers. Each puts what the other lacks of that stream at the head
// of its queue. Because both sides have ended the old stream before, a segment is never on two streams, and no stream
// writes into memory that has been given back.
//
// What a stream's bytes travel by is decided when it opens: see upgrade.go.
//
// A link need not have all its streams (Open, Reach in mesh.go): among many hosts most links carry little, and a stream
// costs a socket and a handshake on both sides. Such a link has no stream before the first segment, and one until it
// carries much data.
//
// Words: a link is a session with a peer from Connect to Forget. A stream is one of its connections; it has an index,
// and a generation that the side with the lower id counts up. An incarnation is one Mesh of a process; a restarted peer
// has another one, and so another link.
//
// Goroutines: Run owns all of them: one that accepts, one per handshake, and per link a keeper (timers), a writer and a
// reader per stream, and a dialer per stream that is down. Forget waits for its link's goroutines. Lock order: Mesh.mu,
// slot.attach, link.mu, then the leaves (notice, refusals). No lock is held while an Owner or a Handler is called
// or a connection is used, except slot.attach during a handshake.
//
// Tried between hosts of two CPUs, without a gain: sending the pages of large payloads without a copy (vmsplice,
// splice), which saves the sender what the peer's read then costs more, since it finds the data in small pages and in
// no cache, and which would make an aborted operation keep its memory until no queue refers to it; waking readers for
// more bytes at a time (SO_RCVLOWAT); smaller segments or socket buffers, so that the data in flight fits into a cache;
// one to eight streams; writing large segments, like small ones, on the goroutine that queues them; attaching an
// acknowledgement to a large segment that a writer is about to take; bypassing the runtime's scheduler (RawSyscall),
// which saves no more than the daemon's relaxed timers do (worker/proc); one processor for all goroutines (GOMAXPROCS),
// with which the fastest operations are twice as fast where no other process wants a CPU, the median ones are not, and
// one host loses a worker.
//
// The cost of an allreduce of 1 MiB between two hosts, 512 KiB in a segment, for each daemon, counted by strace -c -f
// -p DAEMON during gorun bench allreduce -np 2 -H host1,host2 -b 1M -e 1M -f 2 --min-time 4100ms, and the least
// possible:
//
//	                 calls   least
//	writev            2.0     2     the two large segments
//	write             3.3     2     the announcement, and an acknowledgement of each large segment
//	sendto            1.0     1     the completion for the rank
//	read, readv      11.0     7     4 of them find nothing, which is how a reader learns that it has everything
//	epoll_pwait       6.5     5     the rank, the announcement, two segments, an acknowledgement
//	futex             2.7     0     the runtime wakes threads, and lets them sleep
//	nanosleep         1.9     0     the runtime looks after its threads
//
// The bytes are copied once into a socket and once out of it, as in limit_tcp.c of contrib/bench; that does the same in
// one thread that never sleeps. The difference between the two is the wake-ups: the rank's operation, the announcement,
// two segments, the acknowledgement and the rank, one after the other.
//
// An allreduce of 64 KiB from C, in each daemon. Before, the declaration and the tensor travelled one after the other, and
// an acknowledgement of the tensor at once or with the next header; now the declaration has the tensor inline
// (collective/inline.go), and the goroutine that declares writes it:
//
//	                    before   now   least
//	messages to the peer     2     1       1
//	threads put to sleep   3.5     2       2   until the rank has submitted, until the peer has
//	CPU time, in µs        136   102
//	copies of the tensor     4     6       3   into the socket, out of it, into the result
//
// All copies took 7 % of the CPU time before. Two more came with the declaration: into what is sent, and out of what was
// read.
//
// The link never decides that a peer is dead: Status reports its silence, and the owner calls Forget.
package link

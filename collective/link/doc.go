// Package link joins two daemons with a resumable session: segments go over any of several streams,
// carry sequence numbers, are acknowledged, and are kept until the peer has them. A broken stream is
// repaired inside the link; nobody above notices.
//
// How a segment goes:
//
//  1. Send queues it (link.go). Small segments have a queue of their own that goes first, and a stream
//     of their own; within a queue the order is that of Send. Any stream that is free takes the next
//     one, so that a slow stream takes less. If a stream is idle, Send writes a small segment itself, as
//     far as the socket takes it.
//  2. The stream numbers it, calls Owner.Prepare and writes header and payload with one writev
//     (transmit.go). Across streams there is no order.
//  3. The peer's stream reads the header, drops what it has already, asks Handler.Place for the
//     destination, reads the payload into it, notes the number and calls Handler.Deliver (receive.go).
//  4. Acknowledgements ride on every header that goes back, or go alone when nothing else does (ack.go).
//     The acknowledged segment goes back to its Owner.
//
// How a stream breaks and comes back (attach.go): both sides prove that they hold the job's key
// (handshake.go). Then the side with the lower id stops its old stream of the same index, waits until
// nothing reads or writes on it any more, and says what it has received; the other side does the same
// and answers. Each puts what the other lacks of that stream at the head of its queue. Because the old
// stream has ended on both sides before, a segment is never on two streams, and no stream writes into
// memory that has been given back.
//
// A link need not have all its streams (Open, Reach in mesh.go): among many hosts most carry little, and a stream
// costs a socket and a handshake on both sides. Then it has none before the first segment, and one before much data.
//
// Words: a link is a session with a peer from Connect to Forget. A stream is one connection of it; it
// has an index, and a generation that the side with the lower id counts up. An incarnation is one Mesh of
// a process; a restarted peer has another, and so another link.
//
// Goroutines: Run owns all of them: one that accepts, one per handshake, and per link a keeper (timers),
// a writer and a reader per stream, and a dialer per stream that is down. Forget waits for those of its
// link. Lock order: Mesh.mu, slot.attach, link.mu, and those of leaves (notice, refusals). No lock is held
// while an Owner or a Handler is called or a connection is used, but slot.attach during a handshake.
//
// Tried, and no better between hosts of two CPUs: to send the pages of large payloads without a copy (vmsplice, splice), which
// spares the sender what the peer's read then costs more, as it finds the data in small pages and in no cache, and which
// would need an aborted operation to keep its memory until no queue refers to it; to wake readers for more bytes at a time
// (SO_RCVLOWAT); smaller segments, or smaller buffers of sockets, so that what is under way fits into a cache; from one to
// eight streams; to write large segments, as small ones are, on the goroutine that queues them; to let an acknowledgement ride on
// a large segment that a writer is about to take; to read and write without a word to the runtime's scheduler (RawSyscall), which
// saves what a daemon's timers that may be late save too (worker/proc); one processor for all goroutines (GOMAXPROCS), with which
// the fastest operations are twice as fast where nobody else wants a CPU, the median ones are not, and one host loses a worker.
//
// What an allreduce of 1 MiB between two hosts, 512 KiB in a segment, costs each daemon, counted by strace -c -f -p DAEMON during
// gorun bench allreduce -np 2 -H host1,host2 -b 1M -e 1M -f 2 --min-time 4100ms, and what it would cost at least:
//
//	                 calls   least
//	writev            2.0     2     the two large segments
//	write             3.3     2     the announcement, and an acknowledgement of each large segment
//	sendto            1.0     1     the rank is told
//	read, readv      11.0     7     4 of them find nothing: a reader knows only then that it has all
//	epoll_pwait       6.5     5     the rank, the announcement, two segments, an acknowledgement
//	futex             2.7     0     the runtime wakes threads, and lets them sleep
//	nanosleep         1.9     0     the runtime looks after its threads
//
// The bytes are copied once into a socket and once out of it, as they are in limit_tcp.c of contrib/bench; that does the same in
// one thread that never sleeps. What is left between the two is the wake-ups: the rank's operation, the announcement, two
// segments, the acknowledgement and the rank, one after the other.
//
// The link never decides that a peer is dead: silence is reported by Status, and Forget is the owner's.
package link

// Package verbs carries the bytes of a link's streams over RDMA: a stream opens as a TCP connection, both sides prove
// over it that they hold the job's key, and then agree over it on a queue pair, whose memory takes the bytes from there
// on. The package knows nothing of segments. Sequence numbers, acknowledgements and replay stay in collective/link,
// where a queue pair that fails is a stream that broke: it is replaced, over TCP if RDMA failed twice within a while,
// and over RDMA again later.
//
// How bytes travel:
//
//  1. Each side has two rings in memory that the device has registered, one to send from and one that the peer writes
//     to. A byte has the same place in the sender's and in the receiver's ring, so there is nothing to agree on.
//  2. Write copies into the ring and posts an RDMA write with immediate data. The immediate data reports what the
//     writer has read from the ring that the peer writes to, and how many messages it can receive again (flow.go).
//  3. The peer's device completes a receive for it. The pump of its Conn wakes the reader, which copies the bytes to
//     their destination. When nothing goes back, a message without bytes reports that there is room again.
//
// The daemon makes both copies, as the kernel does with TCP. So no device ever writes into the memory of an operation,
// and a stream that broke only has to be closed.
//
// Files: transport.go has the Transport; upgrade.go agrees with the peer by the messages of offer.go; retry.go has what
// follows a failure, which trial.go decides, pure; pause.go empties the devices; driver.go bounds calls of drivers;
// conn.go is the connection; flow.go is the state of one queue pair, pure; tuning.go has the options; provider.go is
// what the package needs of a library. Package ibverbs is the binding of libibverbs, verbstest an imitation in memory
// for tests.
//
// The TCP connection stays open beside the queue pair and carries nothing. It ends when the peer's process ends; a
// queue pair notices that only when it sends.
//
// Goroutines: a Conn has a pump, which polls the completion queue and waits for it in Go's poller, one that waits for
// asynchronous events, such as a port that goes down or a device that is removed, and one that waits for the end of the
// TCP connection. The last of its users destroys the queue pair and then frees its memory.
package verbs

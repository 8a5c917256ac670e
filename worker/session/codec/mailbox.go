package codec

// A mailbox is memory in which a rank leaves messages for its daemon: "The mailbox" in PROTOCOL.md.
const (
	MailboxBytes = 128 << 10 // of messages: a power of two, larger than any message

	MailboxPut    = 0   // u64, of the rank: bytes that it has put there, ever
	MailboxTaken  = 64  // u64, of the daemon: bytes that it has taken
	MailboxAsleep = 72  // u32, set by the daemon: it wants MAIL after the next message
	MailboxData   = 128 // the messages
	MailboxSize   = MailboxData + MailboxBytes
)

package codec

import (
	"strings"

	"gorun/collective"
	"gorun/collective/kernel"
)

//go:generate go run gorun/contrib/tools/rankproto ../../../contrib/python/gorun ../../../contrib/c

// Table is a group of numbers that all ends of the protocol share. contrib/tools/rankproto writes the tables into the
// bindings for Python and C.
type Table struct {
	Name string
	Rows []Row
}

// Row is a number of a table, under the name that the bindings know it by.
type Row struct {
	Name  string
	Value int
	Doc   string // may be empty
	Text  string // the name in a call of the binding, for codings
	Bytes int    // of an element, for element types
}

// Tables returns all tables.
func Tables() []Table {
	return []Table{
		{"messages", []Row{
			{Name: "HELLO", Value: TypeHello, Doc: "in refusals only"},
			{Name: "ALLOC", Value: TypeAlloc},
			{Name: "SUBMIT", Value: TypeSubmit},
			{Name: "RELEASE", Value: TypeRelease},
			{Name: "FREE", Value: TypeFree},
			{Name: "BYE", Value: TypeBye},
			{Name: "ENV", Value: TypeEnv},
			{Name: "SLOTS", Value: TypeSlots, Doc: "both ways"},
			{Name: "WAKE", Value: TypeWake, Doc: "from the daemon"},
			{Name: "TRAFFIC", Value: TypeTraffic, Doc: "both ways"},
			{Name: "SHOW", Value: TypeShow, Doc: "from the daemon"},
			{Name: "HIDE", Value: TypeHide, Doc: "from the daemon"},
			{Name: "KEPT", Value: TypeKept},
			{Name: "BATCH", Value: TypeBatch},
			{Name: "MAILBOX", Value: TypeMailbox, Doc: "both ways"},
			{Name: "MAIL", Value: TypeMail},
			{Name: "WELCOME", Value: TypeWelcome, Doc: "this one and those below are from the daemon"},
			{Name: "REGION", Value: TypeRegion},
			{Name: "FAIL", Value: TypeFail},
			{Name: "COMPLETE", Value: TypeComplete},
			{Name: "GOODBYE", Value: TypeGoodbye},
			{Name: "GONE", Value: TypeGone},
			{Name: "CHANGED", Value: TypeChanged},
			{Name: "COMPLETED", Value: TypeCompleted},
		}},
		{"flags", []Row{
			{Name: "VERSION", Value: Version, Doc: "of the protocol"},
			{Name: "NO_REGION", Value: NoRegion, Doc: "the number of no region"},
			{Name: "SLOTS_THERE", Value: slotsThere, Doc: "flag of WELCOME: there are slots"},
			{Name: "BATCH_TAKEN", Value: batchTaken, Doc: "flag of WELCOME: the daemon understands BATCH"},
			{Name: "TAKES_SLOT", Value: takesSlot, Doc: "added to SUBMIT's kind: the rank would take a slot"},
			{Name: "TAKES_WIDE", Value: takesWide, Doc: "added to SUBMIT's number of dimensions: also a wide slot"},
			{Name: "TAKES_BELT", Value: takesBelt, Doc: "added to SUBMIT's number of dimensions: also a slot on the belt"},
			{Name: "BELT_THERE", Value: beltThere, Doc: "flag of WELCOME: there is a belt"},
			{Name: "MAIL_TAKEN", Value: mailTaken, Doc: "flag of WELCOME: the daemon understands MAILBOX"},
			{Name: "WIRE_BITS", Value: codingBits, Doc: "bits of SUBMIT's reduction; those above are the coding"},
		}},
		{"limits", []Row{
			{Name: "MAX_MESSAGE", Value: MaxMessage, Doc: "bytes of a message from a rank"},
			{Name: "MAX_ANSWER", Value: MaxAnswer, Doc: "bytes of a message from the daemon: numbers for 16384 ranks"},
			{Name: "MAX_NAME", Value: MaxName, Doc: "bytes of a name"},
			{Name: "MAX_DIMS", Value: MaxDims, Doc: "dimensions of a tensor"},
			{Name: "MAX_IN_FLIGHT", Value: MaxInFlight, Doc: "operations of a rank"},
		}},
		{"mailbox", []Row{
			{Name: "MAILBOX_BYTES", Value: MailboxBytes, Doc: "bytes of messages in a mailbox, a power of two"},
			{Name: "MAILBOX_PUT", Value: MailboxPut, Doc: "offsets in the mailbox: how many bytes the rank has put there"},
			{Name: "MAILBOX_TAKEN", Value: MailboxTaken, Doc: "how many the daemon has taken"},
			{Name: "MAILBOX_ASLEEP", Value: MailboxAsleep, Doc: "the daemon wants to be woken"},
			{Name: "MAILBOX_DATA", Value: MailboxData, Doc: "the messages"},
		}},
		{"slots", []Row{
			{Name: "LINE", Value: SlotLine, Doc: "bytes of a cache line"},
			{Name: "RANK_LEFT", Value: RankLeft, Doc: "in a rank's line: the rank has left"},
			{Name: "WORLD_GONE", Value: WorldGone, Doc: "in a rank's line: the world has ended"},
			{Name: "WIDE", Value: WideSlot, Doc: "added to the offset of a slot: it is a wide one"},
			{Name: "ON_BELT", Value: BeltSlot, Doc: "added to the offset of a slot: it is on the belt"},
			{Name: "MAX_SLOTS", Value: MaxSlots, Doc: "names that have a slot"},
			{Name: "MAX_SLOT_RANKS", Value: MaxSlotRanks, Doc: "ranks of a host that has slots"},
			{Name: "MAX_SLOT_BYTES", Value: MaxSlotBytes, Doc: "bytes of a tensor in a slot"},
			{Name: "MAX_WIDE_BYTES", Value: MaxWideBytes, Doc: "bytes of a tensor in a wide slot"},
			{Name: "MAX_CROWD_BYTES", Value: MaxCrowdBytes, Doc: "the same, if ranks outnumber CPUs"},
			{Name: "BELT", Value: SlotsBytes, Doc: "offset of the belt in the memory of slots"},
			{Name: "MAX_BELT_BYTES", Value: MaxBeltBytes, Doc: "bytes of a tensor in a slot on the belt"},
			{Name: "BELT_PART", Value: BeltPart, Doc: "bytes of a part of a tensor on the belt"},
			{Name: "BELT_DEPTH", Value: BeltDepth, Doc: "parts in the area of a rank"},
			{Name: "BELT_AREA", Value: BeltArea, Doc: "bytes of the area of a rank"},
			{Name: "BELT_LEFT", Value: BeltLeft, Doc: "at the start of an area: the rank has given up"},
			{Name: "BELT_FAILED", Value: BeltFailed, Doc: "at the start of an area: it has given up because another rank had"},
			{Name: "BELT_FILLED", Value: BeltFilled, Doc: "offset in an area: number of parts that the rank has put there"},
			{Name: "BELT_REDUCED", Value: BeltReduced, Doc: "offset in an area: number of parts whose share the rank has reduced"},
			{Name: "BELT_BUFFERS", Value: BeltBuffers, Doc: "offset in an area: the parts"},
			{Name: "BELT_RESULTS", Value: BeltResults, Doc: "offset in an area: the reduced shares"},
			{Name: "BELT_SHARE", Value: BeltShare, Doc: "bytes of a share at most"},
			{Name: "MAX_DOORBELL", Value: MaxDoorbell, Doc: "bytes of the name of a doorbell"},
		}},
		{"codes", []Row{
			{Name: "OK", Value: 0},
			{Name: "INVALID", Value: int(collective.CodeInvalid), Doc: "this rank's own arguments, or a function out of turn"},
			{Name: "MISMATCH", Value: int(collective.CodeMismatch), Doc: "ranks submitted different things under one name"},
			{Name: "SHUTDOWN", Value: int(collective.CodeShutdown), Doc: "a rank left before it contributed"},
			{Name: "ABORTED", Value: int(collective.CodeAborted), Doc: "the world has ended: a host died"},
			{Name: "INTERNAL", Value: int(collective.CodeInternal)},
		}},
		{"kinds", kinds()},
		{"elements", elements()},
		{"reductions", reductions()},
		{"codings", codings()},
	}
}

// spelled are the names that the bindings do not spell as Go's texts do.
var spelled = map[string]string{
	"add process set": "ADD_GROUP", "remove process set": "REMOVE_GROUP",
	"bitand": "BIT_AND", "bitor": "BIT_OR", "bitxor": "BIT_XOR",
	"fp16": "FLOAT16", "bf16": "BFLOAT16",
}

func spell(text string) string {
	if name, ok := spelled[text]; ok {
		return name
	}
	return strings.ToUpper(text)
}

func kinds() (rows []Row) {
	for k := collective.Allreduce; k <= collective.Peek; k++ {
		rows = append(rows, Row{Name: spell(k.String()), Value: int(k)})
	}
	return rows
}

func elements() (rows []Row) {
	for t := kernel.Type(1); t.Valid(); t++ {
		rows = append(rows, Row{Name: spell(t.String()), Value: int(t), Bytes: t.Size()})
	}
	return rows
}

func reductions() (rows []Row) {
	docs := map[kernel.Op]string{kernel.Adasum: "of allreduce, for floats", kernel.BitAnd: "these six for integers and bool"}
	for o := kernel.Op(0); o.Valid(); o++ {
		rows = append(rows, Row{Name: spell(o.String()), Value: int(o), Doc: docs[o]})
	}
	return rows
}

func codings() (rows []Row) {
	for c := kernel.Coding(0); c.Valid(); c++ {
		r := Row{Name: spell(c.String()), Value: int(c), Text: c.String()}
		if c == kernel.CodingDefault {
			r.Name, r.Text, r.Doc = "DEFAULT", "default", "as the job says: gorun --wire-compression"
		}
		rows = append(rows, r)
	}
	return rows
}

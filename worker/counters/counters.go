// Package counters holds what a rank counts about its own time: how long it computed, waited for data, waited for other
// ranks and waited for bytes to move. The counters are in a page of memory that the rank writes and its daemon reads,
// so that counting costs a rank no message, and a daemon can look at a rank that hangs.
//
// The daemon makes the page before it starts the rank, and the rank finds it under the path in GORUN_COUNTERS. A
// process that ignores the variable has a page of zeros. The page has no name in a file system and goes with the
// daemon.
//
// All numbers are little-endian 64-bit integers that the rank alone writes. Times are in nanoseconds, and stamps are
// readings of CLOCK_MONOTONIC. Nothing a rank writes can harm the daemon: Page.Read bounds what it returns.
package counters

import (
	"encoding/binary"
	"time"

	"gorun/worker/session/codec"
)

// Size is the size of a page in bytes.
const Size = 4096

// Offsets of the counters in a page.
const (
	AtBegan         = 0  // stamp: when the rank began to count; 0 before
	AtSteps         = 8  // training steps that have ended
	AtStepTime      = 16 // length of the last step
	AtData          = 24 // time in which the rank waited for its input data
	AtOthers        = 32 // time in which it waited for other ranks to submit their contributions
	AtCommunication = 40 // time in which it waited while an operation ran
	AtHidden        = 48 // time in which operations ran while the rank did something else
	AtOperations    = 56 // operations that it waited for or polled
	AtActivity      = 64 // what the rank does now: an Activity
	AtSince         = 72 // stamp: since when
	AtSignal        = 80 // number of the signal that makes the process write the stacks of its threads; 0 for none
	AtMainSignal    = 88 // number of the signal for the stack of its main thread alone
)

// Table returns the numbers of the page, for the bindings.
func Table() codec.Table {
	return codec.Table{Name: "counters", Rows: []codec.Row{
		{Name: "PAGE_BYTES", Value: Size, Doc: "size of the page"},
		{Name: "BEGAN", Value: AtBegan, Doc: "offsets in the page: stamp of when the rank began to count"},
		{Name: "STEPS", Value: AtSteps},
		{Name: "STEP_TIME", Value: AtStepTime, Doc: "length of the last step"},
		{Name: "DATA", Value: AtData, Doc: "waiting for input data"},
		{Name: "OTHERS", Value: AtOthers, Doc: "waiting for other ranks"},
		{Name: "COMMUNICATION", Value: AtCommunication, Doc: "waiting while an operation ran"},
		{Name: "HIDDEN", Value: AtHidden, Doc: "operations that ran while the rank did something else"},
		{Name: "OPERATIONS", Value: AtOperations},
		{Name: "ACTIVITY", Value: AtActivity},
		{Name: "SINCE", Value: AtSince, Doc: "stamp of when the activity began"},
		{Name: "SIGNAL", Value: AtSignal, Doc: "number of the signal that asks for stacks"},
		{Name: "MAIN_SIGNAL", Value: AtMainSignal, Doc: "number of the signal that asks for the main thread's stack alone"},
		{Name: "COMPUTING", Value: int(Computing), Doc: "activities"},
		{Name: "WAITING_FOR_DATA", Value: int(WaitingForData)},
		{Name: "WAITING_IN_GORUN", Value: int(WaitingInGorun)},
	}}
}

// Signals that a rank can ask for its stacks: the real-time signals, which mean nothing else to a process that has
// chosen one.
const (
	firstSignal = 34
	lastSignal  = 64
)

// Activity is what a rank is doing.
type Activity uint64

// The activities that a rank reports. Everything else that it does is Computing.
const (
	Computing      Activity = iota
	WaitingForData          // in the iterator of its data loader
	WaitingInGorun          // for the end of an operation
)

func (a Activity) String() string {
	switch a {
	case WaitingForData:
		return "waits for data"
	case WaitingInGorun:
		return "waits for an operation"
	default:
		return "computes"
	}
}

// Counts is what a rank has counted by some moment. The zero value belongs to a process that counts nothing.
type Counts struct {
	Elapsed       time.Duration // since the rank began to count
	Steps         int64
	Step          time.Duration // length of the last step
	Data          time.Duration
	Others        time.Duration
	Communication time.Duration
	Hidden        time.Duration
	Operations    int64
	Activity      Activity
	For           time.Duration // how long the activity lasts already
	Signal        int           // that makes the process write its stacks, 0 for none
	MainSignal    int           // that makes it write the stack of its main thread, 0 for none
}

// Decode reads a page at a moment, a reading of CLOCK_MONOTONIC. It accepts any bytes: a time that could not have
// passed since the rank began is cut to what could.
func Decode(page []byte, now time.Duration) Counts {
	if len(page) < Size {
		return Counts{}
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(page[at:]) & (1<<63 - 1)) }
	began := time.Duration(number(AtBegan))
	if began == 0 || began > now {
		return Counts{}
	}
	c := Counts{Elapsed: now - began, Steps: number(AtSteps), Operations: number(AtOperations),
		Activity: Activity(number(AtActivity))}
	within := func(at int) time.Duration { return min(time.Duration(number(at)), c.Elapsed) }
	c.Step, c.Data, c.Others = within(AtStepTime), within(AtData), within(AtOthers)
	c.Communication, c.Hidden = within(AtCommunication), within(AtHidden)
	signal := func(at int) int {
		if n := number(at); n >= firstSignal && n <= lastSignal {
			return int(n)
		}
		return 0
	}
	c.Signal, c.MainSignal = signal(AtSignal), signal(AtMainSignal)
	if c.Activity > WaitingInGorun {
		c.Activity = Computing
	}
	if since := time.Duration(number(AtSince)); since >= began && since <= now {
		c.For = now - since
	}
	// A wait that is not over is not in the counters yet.
	switch c.Activity {
	case WaitingForData:
		c.Data = min(c.Data+c.For, c.Elapsed)
	case WaitingInGorun:
		c.Others = min(c.Others+c.For, c.Elapsed)
	}
	return c
}

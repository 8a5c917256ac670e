package verbs

import (
	"testing"
	"time"
)

func TestTrial(t *testing.T) {
	const restMin, restMost = time.Second, time.Minute
	tr := trial{least: restMin, most: restMost}
	at := time.Duration(0)
	fail := func(want time.Duration) {
		t.Helper()
		if !tr.wants(at) {
			t.Fatalf("no attempt at %v", at)
		}
		if got := tr.failed(at); got != want {
			t.Fatalf("rests for %v, want %v", got, want)
		}
		if want > 0 && tr.wants(at+want-1) {
			t.Fatal("an attempt while it rests")
		}
		at += want
	}
	fail(0) // the first queue pair is replaced at once
	for rest := restMin; rest < restMost; rest *= 2 {
		tr.worked(at)
		at += steady - 1
		fail(rest)
	}
	fail(restMost)
	fail(restMost)
	tr.worked(at)
	at += steady
	fail(0) // it had worked for long
	fail(restMin)
}

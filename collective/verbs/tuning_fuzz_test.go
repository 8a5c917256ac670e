package verbs_test

import (
	"testing"
	"time"

	"gorun/collective/verbs"
)

// FuzzParseTuning: whatever the user writes, what is accepted is within what devices take.
func FuzzParseTuning(f *testing.F) {
	f.Add("gid=3,roce=2,mtu=1024,class=106,hops=1,timeout=14,retries=7,rnr=7,rest=1s")
	f.Add("rest=-1ns,,gid=")
	f.Fuzz(func(t *testing.T, text string) {
		tuning, err := verbs.ParseTuning(text)
		if err != nil {
			return
		}
		if tuning.GID < -1 || tuning.GID > 255 || tuning.MTU < 256 || tuning.MTU > 4096 || tuning.Timeout < 1 || tuning.Timeout > 31 ||
			tuning.Retries > 7 || tuning.RNR > 7 || tuning.HopLimit < 1 || tuning.HopLimit > 255 || tuning.Rest <= 0 || tuning.Rest > time.Hour {
			t.Errorf("%q gives %+v", text, tuning)
		}
	})
}

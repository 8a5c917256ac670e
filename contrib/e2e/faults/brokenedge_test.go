package faults

import (
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// summing has ranks add up numbers for ever, and print the first sum.
const summing = `
import time
import numpy as np
import gorun.numpy as hvd
hvd.init()
for n in range(1 << 30):
    hvd.allreduce(np.ones(1000, dtype=np.float32), name="x")
    if n == 0:
        print("summed", flush=True)
    time.sleep(0.03)
`

// TestBrokenEdge: two of three hosts no longer reach each other, but the launcher reaches both. They report each
// other; at the end of the lease one of the two is lost, and training goes on. A job that cannot go on without it
// ends with an error.
func TestBrokenEdge(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	hosts := []string{"--lease", "4", "-H", "host1:1,host2:1,host3:1"}
	j := c.TrainOn(append(hosts, "--min-np", "1", "--on-failure", "shrink")...)
	fixed := c.Follow(append(hosts, "-np", "3", e2etest.Python, "-c", summing)...)
	fixed.Await(`summed$`)
	j.Await(`is rank 2 of 3`)
	j.Await(`batch 20$`)
	j.Must(c.Host(2).Mute(c.Host(3)))
	j.Must(c.Host(3).Mute(c.Host(2)))
	const told = `^gorun: host(2 has been silent to host3|3 has been silent to host2) for \d s, although both are heard here`
	j.Await(told)
	const why = `(silent for 4s, as host[23] reports|cut off from 1 host: host[23])` // whichever of the two is lost, and has reported it itself or not
	j.Await(`^gorun: host[23] is lost: ` + why)
	j.Await(`is rank \d of 2 from batch [1-9]`)
	fixed.Await(told)
	fixed.Await(`host[23]: run: ` + why)
	if err := fixed.Cmd.Wait(); err == nil {
		t.Errorf("a job that cannot go on without a host ends well\n%s", fixed.Out)
	}
	j.EndNow(2)
	if j.Out.Has(`gorun: host1 is lost: `) {
		t.Errorf("a host was lost that all others hear\n%s", j.Out)
	}
}

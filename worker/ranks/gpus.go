package ranks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/rankenv"
)

// chooseGPUs returns the devices of a host's slots, enough for so many ranks: what the user listed, or what is there.
// nil leaves GPUs to the program; most programs choose by LOCAL_RANK.
func chooseGPUs(ctx context.Context, list []string, host topology.Host, ranks int) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if slices.Equal(list, []string{"auto"}) {
		list = findGPUs(ctx, host)
	}
	if len(list) < ranks {
		return nil, fmt.Errorf("%s, but %s", topology.Count(ranks, "rank"), topology.Count(len(list), "GPU"))
	}
	return list, nil
}

// reportGPUs notes that the user lists GPUs of a host that seems to have none. It is no error, since gorun does not
// know every way to see one.
func reportGPUs(out *wire.Writer, job *wire.Job, host topology.Host) {
	_, set := rankenv.Lookup(job.Env, "CUDA_VISIBLE_DEVICES")
	listed := len(job.GPUs) > 0 && job.GPUs[0] != "auto" && !set
	if listed && len(host.GPUs) == 0 && !hasAccelerator(os.DirFS("/")) {
		say(out, "--gpus %s: no GPU is to be seen on this host: nvidia-smi -L lists those that programs can use",
			strings.Join(job.GPUs, ","))
	}
}

// findGPUs asks the driver's own tool, which knows the parts that GPUs are cut into (MIG); without it, it takes
// what the kernel shows. Neighbouring ranks get GPUs that NVLinks join.
func findGPUs(ctx context.Context, host topology.Host) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, "nvidia-smi", "-L").Output()
	if list := parseGPUs(string(text)); err == nil && len(list) > 0 {
		return topology.OrderGPUs(host.GPUs, list)
	}
	var out []string
	for _, g := range host.GPUs {
		if g.UUID == "" {
			out = append(out, strconv.Itoa(g.Index))
		} else {
			out = append(out, g.UUID)
		}
	}
	return out
}

var gpuUUID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\(UUID: ((?:GPU|MIG)-[0-9A-Za-z/-]+)\)`)
})

// parseGPUs reads nvidia-smi -L: a line for each GPU, followed by a line for each of its parts if it is cut. A
// GPU that is cut cannot be used whole.
func parseGPUs(text string) []string {
	var out []string
	whole := "" // a GPU that no part was seen of yet
	for line := range strings.SplitSeq(text, "\n") {
		m := gpuUUID().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if strings.HasPrefix(m[1], "MIG-") {
			whole = ""
			out = append(out, m[1])
			continue
		}
		if whole != "" {
			out = append(out, whole)
		}
		whole = m[1]
	}
	if whole != "" {
		out = append(out, whole)
	}
	return out
}

// deviceOf returns the device of a slot: its entry in gpus, or its number if gpus has none for it. Unless gpus is
// empty, the CUDA_VISIBLE_DEVICES that the user has set wins.
func deviceOf(env, gpus []string, slot int) string {
	if set, ok := rankenv.Lookup(env, "CUDA_VISIBLE_DEVICES"); ok && len(gpus) > 0 {
		return set
	}
	if slot < len(gpus) {
		return gpus[slot]
	}
	return strconv.Itoa(slot)
}

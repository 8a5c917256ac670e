package wire

import (
	"time"

	"gorun/topology"
)

// JobOptions are the options of a job that its daemons obey. The launcher's flags fill them, launcher.Spec and Job embed
// them, and so nothing in between names them one by one. ARCHITECTURE.md, "Start reading here", lists what else a new
// option needs.
type JobOptions struct {
	Wrapper  []string      `msgpack:"wrapper"`   // put before the program of every rank, with placeholders: {rank}, {local_rank}, {gpu}
	Shim     bool          `msgpack:"shim"`      // put the Horovod drop-in on PYTHONPATH
	Verbose  bool          `msgpack:"verbose"`   // send Log messages
	Grace    time.Duration `msgpack:"grace"`     // between TERM, or the INT of a Ctrl-C, and KILL
	Streams  int           `msgpack:"streams"`   // per link, 0 for the default
	Encrypt  bool          `msgpack:"encrypt"`   // what hosts send each other
	Checksum bool          `msgpack:"checksum"`  // authenticate large segments of numbers too, as all else always is
	RDMA     string        `msgpack:"rdma"`      // whether streams of links go over RDMA: "auto", "on", devices with commas, or "off"
	Verbs    string        `msgpack:"verbs"`     // the library for that, by its path on hosts; "" for the system's libibverbs
	RDMATune string        `msgpack:"rdma_tune"` // options of queue pairs, as package verbs reads them; "" for its defaults
	GPUs     []string      `msgpack:"gpus"`      // devices by local rank; "auto" alone for those of the host; nil to leave them alone
	GPUPath  string        `msgpack:"gpu_path"`  // what carries tensors that lie on GPUs: "auto", "nccl", "hierarchical", "ipc" or "host"
	TF       bool          `msgpack:"tf"`        // set TF_CONFIG
	JAX      string        `msgpack:"jax"`       // what carries the collectives of JAX's own programs: "gorun", or "" for what they choose
	IfAlone  IfAlone       `msgpack:"if_alone"`  // what becomes of the job if an MPI library isolates ranks
	PMIPort  bool          `msgpack:"pmi"`       // MPI programs reach their daemon by a port (PMI_PORT) instead of a descriptor
	NICs     []string      `msgpack:"nics"`      // names, drivers or networks that links may use; nil for the path to the hosts

	RingOrder string `msgpack:"ring_order"` // a topology.By
	Topology  []byte `msgpack:"topology"`   // a file of facts about the hosts, as package topology/facts reads it; nil for none

	Bind           topology.Bind `msgpack:"bind"`            // of the ranks to CPUs
	ReportBindings bool          `msgpack:"report_bindings"` // log where the ranks run

	Algorithm string        `msgpack:"algorithm"` // of every allreduce between hosts, "" for what costs least
	Coding    string        `msgpack:"coding"`    // of sums of floats between hosts, "" for none
	Lease     time.Duration `msgpack:"lease"`     // how long a host may be silent; 0 for what its devices need
	VMTools   string        `msgpack:"vmtools"`   // the program to ask about moves of the machine, "" for VMware's in its VMs

	// TimeScale multiplies all durations of package liveness in tests; 0 leaves them as they are.
	TimeScale float64 `msgpack:"time_scale"`

	// Blind turns off counters and the flight recorder, to measure what they cost.
	Blind bool `msgpack:"blind"`

	// Readers are the ranks that read standard input, each a full copy; nil for rank 0 alone. An elastic job has no others.
	Readers []int `msgpack:"readers"`
}

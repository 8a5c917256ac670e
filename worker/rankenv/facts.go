package rankenv

import "encoding/json"

// Facts is what the variables of a rank depend on.
type Facts struct {
	// Of the job.
	Job     string // its id
	Elastic bool
	DropIn  bool     // programs that import Horovod get gorun's in its place
	NICs    []string // that the user chose on this host, nil for none

	// The rank's place.
	Process                                                int // its number in the job
	Rank, Size, LocalRank, LocalSize, CrossRank, CrossSize int
	Spare                                                  bool   // it waits for its first world
	Host                                                   string // as in the host list
	Group, Groups                                          int    // the number of the host among those with ranks

	// Of the daemon.
	Dir       string // in which the program runs
	Python    string // the environment of Python that the job brings, "" for none
	Binary    string // gorun, which Python imports its binding from
	Socket    string // of the session
	Token     string // proves the rank's identity there
	Counters  string // path of the rank's counters, "" for none
	Stacks    string // path to which it writes its stacks, "" for none
	SpareCPUs []int  // for what the rank starts, nil for none
	GPU       string // the device of the rank, "" to leave the choice to the program
	GPUPath   string // what carries tensors that lie on GPUs
	Threads   int    // each rank's share of the CPUs

	// Where others find this host.
	NIC    string // the interface, "" if there are no others, or they are on this machine
	Addr   string // its address there
	RDMA   bool   // libraries may take an RDMA device in place of an interface
	NCCLBy bool   // a file of NCCL's says which interfaces it uses

	// Where others are.
	MasterAddr  string
	MasterPort  int
	Coordinator string   // address of JAX's, "" if it is not known
	Workers     []string // addresses of TensorFlow's, by rank; nil if TF_CONFIG is not wanted
	PMI         *PMI     // nil if the rank is too late for MPI
	MPILibrary  string   // where JAX finds MPI on gorun's engine, "" if it is not to
	Stock       *Stock   // nil unless the rank may be one of stock Horovod

	Accelerator bool // the host has a GPU or its like
	Verbose     bool // ranks show which frameworks they run on

	userPath string // the user's PYTHONPATH
	programs string // the user's PATH
}

// PMI is where an MPI program finds its process manager: at a port, or by a descriptor that it inherits.
type PMI struct {
	Port string // host:port, "" for the descriptor
	ID   int    // the rank's identity at the port
}

// Stock is where a rank of stock Horovod finds the others.
type Stock struct {
	Addr string
	Port int
	NIC  string // the interface to use, "" for Horovod's choice
}

// deviceOfJAX is the number of a rank's own device among the devices that it sees.
func deviceOfJAX(f *Facts) string {
	if f.GPU != "" {
		return "0"
	}
	return localRank(f)
}

// tfConfig is what tf.distribute reads: every worker's address in the order of the ranks, and which one this is.
func tfConfig(f *Facts) string {
	type task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	config := struct {
		Cluster map[string][]string `json:"cluster"`
		Task    task                `json:"task"`
	}{map[string][]string{"worker": f.Workers}, task{"worker", f.Rank}}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // strings and a number
	}
	return string(text)
}

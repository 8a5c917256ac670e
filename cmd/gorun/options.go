package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"gorun/rendezvous/wire"
)

// jobFlags are the flags of a launch, in groups by concern. The table that binds the fields of a group is in the file
// of its concern. A flag that daemons obey as it is fills a field of JobOptions; validate fills the other fields of
// JobOptions.
type jobFlags struct {
	invocation
	wire.JobOptions
	clusterFlags

	// How many ranks run, and where.
	np                             int
	hosts                          string
	hostfile, hydraHostfile        string
	ppn                            int
	mapBy, rankBy                  string
	oversubscribe, noOversubscribe bool
	displayMap                     bool
	pernode, byNode, bySlot        bool
	bindTo                         string // which CPUs they run on

	// How hosts are reached.
	sshPort       int
	identityFiles cli.StringSlice
	sshConfig     string
	sshCommand    string
	launcher      string
	connectRetry  time.Duration

	// A job that runs as pods.
	kubernetes        bool
	image             string
	namespace         string
	kubeContext       string
	kubernetesOptions string
	podTemplate       string

	// What the ranks run.
	dir               string
	variables         cli.StringSlice
	envNone           bool
	genv, env         pairs
	genvList, envList string
	wrapper           string
	gpus              string
	strict            bool
	noShim            bool
	ship              bool
	shipDir           string
	python            string
	envFile           string
	module            bool

	// Where the ranks' output goes, and which ranks read input.
	outputDir                          string
	tag                                string
	noTag                              bool
	timestamps                         bool
	onlyRanks                          string
	merge                              bool
	tagPattern, outPattern, errPattern string // Hydra's
	color                              string
	jsonEvents                         bool
	stdin                              string

	startTimeout, timeout      time.Duration
	topologyFile, saveTopology string
	moves                      string // the command that announces moves of hosts

	// Jobs whose hosts come and go. The names are horovodrun's.
	minNP, maxNP, spares         int
	evictStragglers              bool
	script                       string
	slotsPerHost                 int
	onFailure, blacklist, onLoss string
	resetLimit                   int
	lossLimit                    int
	cooldown                     timeRange
	elasticTimeout               time.Duration

	dryRun, detach, version bool
	metrics                 string // where metrics are served, "" for nowhere
	web                     string // where the page is, "" for nowhere

	// Scripts and manifests written for mpirun or mpiexec have these.
	mca          pairs
	programsFile string

	// Scripts written for torchrun have these.
	nnodes, nprocPerNode string
	standalone           bool
	maxRestarts          int

	// horovodrun's.
	checkBuild bool
	configFile string
	nics, nic  cli.StringSlice
	texts      map[string]*string // the knobs that the user set, by name: those with a value
	switches   map[string]*bool   // and those without
}

// clusterFlags name a cluster.
type clusterFlags struct {
	cluster string // HOST[:PORT] of one of its daemons, "" for none
	keyFile string
}

// namesHosts reports whether the flags name the hosts.
func (o *jobFlags) namesHosts() bool {
	return o.given(&o.hosts) || o.hostfile != "" || o.hydraHostfile != ""
}

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

	placeFlags
	bindFlags
	connectFlags
	clusterFlags
	kubernetesFlags
	programFlags
	streamFlags
	lifetimeFlags
	ringFlags
	elasticFlags
	silenceFlags
	otherFlags
	mpirunFlags
	torchrunFlags
	horovodFlags
	knobFlags
}

// placeFlags determine how many ranks run, and where.
type placeFlags struct {
	np                             int
	hosts                          string
	hostfile, hydraHostfile        string
	ppn                            int
	mapBy, rankBy                  string
	oversubscribe, noOversubscribe bool
	displayMap                     bool
	pernode, byNode, bySlot        bool
}

// bindFlags determine which CPUs ranks run on.
type bindFlags struct {
	bindTo string
}

// connectFlags determine how hosts are reached.
type connectFlags struct {
	sshPort       int
	identityFiles cli.StringSlice
	sshConfig     string
	sshCommand    string
	launcher      string
	connectRetry  time.Duration
}

// clusterFlags name a cluster.
type clusterFlags struct {
	cluster string // HOST[:PORT] of one of its daemons, "" for none
	keyFile string
}

// kubernetesFlags are about a job that runs as pods.
type kubernetesFlags struct {
	kubernetes        bool
	image             string
	namespace         string
	kubeContext       string
	kubernetesOptions string
	podTemplate       string
}

// programFlags determine what the ranks run.
type programFlags struct {
	dir               string
	variables         cli.StringSlice
	envNone, genvAll  bool
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
}

// streamFlags determine where the ranks' output goes, and which ranks read input.
type streamFlags struct {
	outputDir                          string
	tag                                string
	noTag, tagOutput                   bool
	timestamps                         bool
	onlyRanks                          string
	merge                              bool
	tagPattern, outPattern, errPattern string // Hydra's
	color                              string
	jsonEvents                         bool
	stdin                              string
}

// lifetimeFlags are time limits.
type lifetimeFlags struct {
	startTimeout, timeout time.Duration
}

// ringFlags determine the order of the hosts for data.
type ringFlags struct {
	topologyFile, saveTopology string
}

// elasticFlags are for jobs whose hosts come and go. The names are horovodrun's.
type elasticFlags struct {
	minNP, maxNP, spares         int
	evictStragglers              bool
	script                       string
	slotsPerHost                 int
	onFailure, blacklist, onLoss string
	resetLimit                   int
	lossLimit                    int
	cooldown                     timeRange
	elasticTimeout               time.Duration
}

// silenceFlags are about hosts that are silent for a while.
type silenceFlags struct {
	moves string
}

// otherFlags are the flags that belong to no other group.
type otherFlags struct {
	dryRun, detach, version bool
	metrics                 string // where metrics are served, "" for nowhere
	web                     string // where the page is, "" for nowhere
}

// mpirunFlags are accepted because scripts and manifests written for mpirun or mpiexec have them.
type mpirunFlags struct {
	mca                           pairs
	allowRoot, reportState, quiet bool
	manager                       string
	programsFile                  string
	universe                      string
}

// torchrunFlags are accepted because scripts written for torchrun have them.
type torchrunFlags struct {
	nnodes, nprocPerNode         string
	standalone, noPython, useEnv bool
	maxRestarts                  int
	needless                     [len(needlessNames)]string
}

// horovodFlags are horovodrun's flags that do something of their own.
type horovodFlags struct {
	checkBuild bool
	configFile string
	nics, nic  cli.StringSlice
}

// knobFlags holds the knobs that the user set, by name: a text for one with a value, a switch for a toggle.
type knobFlags struct {
	texts    map[string]*string
	switches map[string]*bool
}

// namesHosts reports whether the flags name the hosts.
func (o *jobFlags) namesHosts() bool {
	return o.given(&o.hosts) || o.hostfile != "" || o.hydraHostfile != ""
}

// needlessNames are torchrun's flags that gorun does without: daemons find out by themselves what these set, or give it
// to their ranks.
var needlessNames = [...]string{"rdzv-id", "rdzv-backend", "rdzv-endpoint", "rdzv-conf", "master-addr", "master-port"}

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// remedies has what to do about each message of a usageError that is made of literals; … stands for what was given.
var remedies = map[string]string{
	"read recording: …": "Give the number of a job, or the path of the `flight.jsonl` that its launcher has named.",
	"--metrics and --web need a directory for the job's state":                                           "Set `HOME`, or `XDG_STATE_HOME` to a directory of yours.",
	"--alpha …, --bandwidth …, --gap …: no link costs that":                                              "The figures of `gorun bench --simulate` are positive, and the bandwidth is not 0.",
	"--bind-to …: jobs of a --cluster share hosts and do not know of each other's cores":                 "Leave `--bind-to` out, or bind by `--bind-to numa`, which several jobs may do.",
	"--cluster needs --cluster-key-file":                                                                 "Name the cluster's key file, or set `GORUN_CLUSTER_KEY_FILE`.",
	"--color …: none of always, never, auto":                                                             "`--color auto` colours tags in a terminal only.",
	"--encrypt=false: the cluster at … takes only jobs that encrypt":                                     "Its daemons run with `--require-encrypt`. Leave out `--encrypt=false` and `GORUN_ENCRYPT`: gorun then encrypts by itself.",
	"--drain-status …: must be 0 to 255":                                                                 "A Job of Kubernetes starts a pod again that ends with another status than 0: `--drain-status 143`.",
	"--elastic-timeout …: must be positive":                                                              "Give a time, as in `--elastic-timeout 600`.",
	"--emit-nccl: … hosts, but the file is for one":                                                      "Name one host: `gorun topo -H host1 --emit-nccl FILE`.",
	"--gloo, --mpi and --jsrun exclude each other":                                                       "Leave all of them out: there is one engine.",
	"--gpu-path …: must be auto, nccl, hierarchical, ipc or host":                                        "`--gpu-path auto` takes NCCL where it can. [GPUs](guides/gpus.md) describes the paths.",
	"--gpus …: neither auto nor a list of GPUs":                                                          "`--gpus auto`, `--gpus 0,1` or `--gpus GPU-…,MIG-…`.",
	"--host-discovery-script excludes --cluster, which knows its hosts":                                  "`--min-np N` alone makes a job in a cluster elastic.",
	"--host-discovery-script excludes -H and --hostfile":                                                 "Name the hosts in one place.",
	"--host-discovery-script: no command":                                                                "Give the command: `--host-discovery-script ./hosts.sh`.",
	"--hostfile -: standard input is rank 0's":                                                           "Write the hosts into a file, or name them with `-H`.",
	"--join …: neither HOST nor HOST:PORT":                                                               "`--join host1`, `--join host1:7575` or `--join dns:gorun.example.net`; an IPv6 address with a port stands in brackets.",
	"--lines …: must not be negative":                                                                    "`gorun logs -n 20` shows the last 20 lines; without `-n` it shows all.",
	"--listen …: no port":                                                                                "Ports are 1 to 65534, as in `--listen :7575`; gossip uses the next one.",
	"--map-by … and --bind-to … exclude each other":                                                      "`--map-by slot:PE=N` binds each rank to N cores: give either that or `--bind-to`.",
	"--measure: no hosts":                                                                                "Name hosts: `gorun topo -H host1,host2 --measure`.",
	"--network-interfaces …: not a network":                                                              "Give names, drivers or networks, as in `--network-interfaces eth0,10.0.0.0/8`.",
	"--nnodes …: a range of hosts needs an elastic job":                                                  "`--min-np N` and `--max-np N`, with `-H` or `--host-discovery-script`.",
	"--nnodes …: neither N nor MIN:MAX":                                                                  "Name the hosts instead: `-H host1,host2`.",
	"--nnodes …: the job has …":                                                                          "The number is that of the hosts in `-H` or `--hostfile`: name them all, and start gorun once.",
	"--nproc-per-node gpu: this machine has no GPU":                                                      "`--nproc-per-node cpu`, or a number. `gorun topo` shows the GPUs that gorun sees.",
	"--nproc-per-node … counts what this machine has, not what other hosts have":                         "`-ppn N`, or slots behind the names of hosts: `-H host1:8,host2:8`.",
	"--nproc-per-node …: neither a number nor auto, gpu or cpu":                                          "Give a number, or one of these words.",
	"--older-than …: must not be negative":                                                               "`gorun clean --older-than 1h` removes what was not used for an hour.",
	"--rdma …: neither off, auto, on nor names of devices":                                               "`--rdma auto` uses the devices that are there. [RDMA](guides/rdma.md) describes the words.",
	"--rdma-options: …":                                                                                  "`--rdma-options gid=3,mtu=4096,class=106`. [RDMA](guides/rdma.md) describes them.",
	"--reset-limit …: must not be negative":                                                              "`--reset-limit 3` lets the job begin anew three times.",
	"--ring-order measured: no hosts":                                                                    "Name hosts: `gorun topo -H host1,host2 --ring-order measured`.",
	"--ring-order measured: only a job that starts its hosts by ssh, and keeps them, measures by itself": "Measure before: `gorun topo -H host1,host2 --measure --save FILE`, then `--topology FILE`.",
	"--save without --measure":                                                                           "Only what is measured is saved: add `--measure`.",
	"--set …: …":                                                                                         "`gorun help settings` says what each takes.",
	"--set …: there is no such setting":                                                                  "`gorun help settings` lists them.",
	"--simulate: only an allreduce can be simulated, not …":                                              "Leave the operation out, or `--simulate`.",
	"--slots …: must be at least 1":                                                                      "Without `--slots` a daemon has a slot for each CPU.",
	"--slots-per-host …: must be 1 to …":                                                                 "Without it each host of the script has the slots that the script prints.",
	"--start-timeout …: must be positive":                                                                "Give seconds, as in `--start-timeout 60`.",
	"--stdin …: in an elastic job only rank 0 can read standard input":                                   "`--stdin 0` or `--stdin none`.",
	"--transport …: neither tcp nor rdma":                                                                "`gorun bench --transport tcp,rdma` measures both.",
	"--topology: no file name":                                                                           "Name the file: `--topology FILE`.",
	"--… is ambiguous":                                                                                   "Several flags of horovodrun begin so: write out the one that is meant.",
	"--… is for elastic jobs":                                                                            "Add `--min-np` or `--host-discovery-script`, which make a job elastic.",
	"--…: no file name":                                                                                  "Name the file behind the flag; a file that begins with a dash is `./-name`.",
	"--…: the programs are those of the file":                                                            "With `--app` or `-configfile`, flags of the whole job go before it, and no program behind it.",
	"--kubernetes is a flag of gorun, not of horovodrun":                                                 "`gorun --kubernetes` takes the same flags.",
	"--kubernetes needs --image":                                                                         "Name an image with gorun and the program in it. [Kubernetes](migrate/slurm-kubernetes.md#from-a-command-line) describes it.",
	"--kubernetes needs -np":                                                                             "Give the number of ranks. `--slots-per-host` sets how many share a pod.",
	"--kubernetes needs gorun-kubernetes beside gorun or in PATH":                                        "Install the package `gorun-kubernetes`, or put that program beside `gorun`.",
	"--kubernetes takes one program, on the command line":                                                "Start a job for each program.",
	"--… excludes --kubernetes":                                                                          "Leave the flag out: pods have neither hosts, nor files, ports or input of this machine.",
	"--… …: a file of a pod is lost with the pod":                                                        "Name a file in a volume of `--kubernetes-options volume=CLAIM:/PATH`.",
	"--… is for jobs in Kubernetes":                                                                      "Add `--kubernetes`.",
	"--launcher srun: this is no allocation of Slurm":                                                    "`salloc` or `sbatch` first, or `--launcher ssh`.",
	"--launcher srun: … is not in …":                                                                     "`scontrol show hostnames` lists the hosts of the allocation. `--launcher ssh` reaches others.",
	"-H and --hostfile exclude each other":                                                               "Name the hosts in one place.",
	"-np …: more than … ranks on one host":                                                               "Name more hosts with `-H`.",
	"-np …: must be at least 1":                                                                          "Without `-np` there is a rank for each slot of the hosts.",
	"-ppn … and --map-by … exclude each other":                                                           "`-ppn N` is `--map-by ppr:N:node`: give one.",
	"-ppn …: must be 1 to …":                                                                             "Give the number of ranks on each host.",
	"-x …: not a variable":                                                                               "`-x NAME=VALUE`, `-x NAME` or `-x 'NCCL_*'`.",
	"as root the daemon would run every job as root":                                                     "`gorun worker --user NAME` runs jobs as that user. [Clusters](guides/clusters.md#install) describes it.",
	"a worker is started by gorun, which speaks with it on standard input":                               "`gorun worker --cluster-key-file FILE` starts a daemon that stays; without it a launch starts workers itself.",
	"add what was measured to the topology file: …":                                                      "The file and the hosts do not fit together. Measure anew: `gorun topo -H host1,host2 --measure --save FILE`.",
	"an elastic job has one program":                                                                     "Leave out `--min-np` and what else makes the job elastic, or start a job for each program.",
	"completion is for one of bash, zsh, fish":                                                           "`source <(gorun completion bash)`.",
	"help: there is no command or topic …":                                                               "`gorun help` lists commands and topics.",
	"an elastic job needs -np or --min-np":                                                               "An elastic job begins with `-np N`, or with `--min-np N`.",
	"in a cluster the first program names hosts too, if others do":                                       "`gorun --cluster … -np 1 -H a … : -np 4 -H b …`.",
	"job … … in the foreground: its output …, and gorun keeps no copy":                                   "Look at the terminal, or at the file that the message names. `--detach` keeps the output for `gorun logs`; of a job that failed gorun keeps the end.",
	"man takes no arguments":                                                                             "`gorun man >gorun.1` writes the page, and `man ./gorun.1` shows it.",
	"no program … …":                                                                                     "Each part between colons ends with a program: `gorun -np 1 python first.py : -np 3 python others.py`.",
	"ps takes no job: it lists them all":                                                                 "`gorun top JOB` shows one, and `gorun logs JOB` its output.",
	"read file of programs: …":                                                                           "`--app` or `-configfile` names a file that is not there or cannot be read.",
	"read hostfile: …":                                                                                   "The file is not there or cannot be read. Its lines are such as `host1 slots=2`.",
	"read topology file: …":                                                                              "The file is not there or cannot be read. `gorun help topology-file` describes it.",
	"rsh-agent needs a host and a command":                                                               "Open MPI calls it: `mpirun --mca plm_rsh_agent 'gorun rsh-agent' -H host1,host2 …`.",
	"this gorun was started by a rank of a job, within … jobs: a program whose ranks start gorun on it would never end": "Have the ranks start another program than their own. `GORUN_DEPTH` counts the jobs; `env -u GORUN_DEPTH gorun …` begins anew.",
	"this control group allows … processes and threads, and has …: …":                                                   "Raise the limit (`TasksMax=`, `pids.max`, `--pids-limit` of a container), or start fewer ranks.",
	"unexpected argument …":        "The command takes no arguments but flags: hosts go behind `-H`.",
	"unknown flag …":               "`gorun help flags` lists all flags. Flags of your program go behind its name.",
	"version takes no arguments":   "To run a program of that name: `gorun -np N version …`.",
	"worker takes no arguments":    "To run a program of that name: `gorun -np N worker …`.",
	"… takes one job":              "`gorun ps` lists the jobs.",
	"…: no program to run":         "The file of programs is empty, or has only comments.",
	"…: hosts are named before it": "Name all hosts at once: `-H host1,host2`.",
}

// sample is a command that is refused.
type sample struct {
	args  []string
	means string
}

// samples are commands whose messages come from several places, or name a value. The page has what they print.
var samples = []sample{
	{[]string{"true", ":"}, "Behind a colon there is another program, with its own `-np`."},
	{[]string{"-np", "two", "true"}, "The flag takes a number. Other flags take times or true and false; the message says which."},
	{[]string{"-np", "4", "-H"}, "The flag takes a value, which is missing."},
	{[]string{"--timeout", "soon", "true"}, "Times are seconds, or have units, as in `1m30s`."},
	{[]string{"--grace", "-1s", "true"}, "The time or number is less than the flag takes."},
	{[]string{"-H", "host1:x", "true"}, "Behind the colon is the number of slots."},
	{[]string{"--hostfile", "hosts.txt", "true"}, "Each line of a hostfile is `host slots=N`, `host:N` or a name alone. The message has the line's number."},
	{[]string{"--hostfile", "empty.txt", "true"}, "The hostfile has no host, or only ones with `slots=0`."},
	{[]string{"--cycle-time-ms", "fast", "true"}, "Flags of horovodrun take the values that they take there."},
	{[]string{"--log-level", "loud", "true"}, "The levels are those of Horovod."},
	{[]string{"--stall-check", "--no-stall-check", "true"}, "Give one of them. The flag that turns a switch off is the same switch."},
	{[]string{"-np", "2", "-np", "3", "--num-proc", "4", "true"}, "A flag and its other name were both given. Give one."},
	{[]string{"--config-file", "gone.yaml", "true"}, "The file of `--config-file` is not there, or no YAML of horovodrun's form."},
	{[]string{"--algorithm", "fast", "true"}, "`--algorithm auto` chooses by size; [Performance](guides/performance.md) compares them."},
	{[]string{"--wire-compression", "zip", "true"}, "[Performance](guides/performance.md) says what each costs."},
	{[]string{"--on-failure", "stop", "--min-np", "1", "true"}, "Give one of the words."},
	{[]string{"--blacklist", "rack", "--min-np", "1", "true"}, "A failed rank costs its slot or its host."},
	{[]string{"--min-np", "0", "true"}, "Jobs have at least one rank."},
	{[]string{"--min-np", "4", "--max-np", "2", "true"}, "The numbers of ranks contradict each other."},
	{[]string{"--map-by", "rack", "true"}, "`--map-by slot` fills hosts one after the other, `--map-by node` takes turns."},
	{[]string{"--bind-to", "rack", "true"}, "[Binding](guides/topology.md#binding) describes the words."},
	{[]string{"--ring-order", "best", "true"}, "`--ring-order topology` is the order that gorun computes."},
	{[]string{"--metrics", "a:b:c", "-np", "1", "true"}, "`--metrics ADDRESS:PORT`, as in `--metrics :9400`. [See where time goes](guides/observe.md) describes it."},
	{[]string{"--web", "a:b:c", "-np", "1", "true"}, "`--web ADDRESS:PORT`, as in `--web :8080`. [See inside a job](guides/observe.md#in-a-browser) describes it."},
	{[]string{"--only-ranks", "some", "true"}, "Ranks are numbers and ranges, as in `0,4-7`."},
	{[]string{"--stdin", "some", "true"}, "`--stdin all`, `none`, or ranks."},
	{[]string{"--tag", "{who}: ", "true"}, "A tag may have `{rank}`, `{host}` and `{stream}`."},
	{[]string{"--rank-wrapper", "'", "true"}, "The words are split as a shell does: a quote is open."},
	{[]string{"--ssh-command", "'", "true"}, "The words are split as a shell does: a quote is open."},
	{[]string{"--launcher", "jsrun", "true"}, "Give one of the names, or a command line: [Slurm and other schedulers](migrate/slurm-kubernetes.md#slurm)."},
	{[]string{"--ssh-identity-file", "gone", "true"}, "Name the file of a private key."},
	{[]string{"--ssh-config", "gone", "true"}, "`--ssh-config none` reads no file."},
	{[]string{"--output-filename", "empty.txt", "true"}, "`--output-filename` names a directory, which gorun makes if it is missing."},
	{[]string{"logs", "99"}, "`gorun ps` lists jobs. One of a cluster is named with `--cluster`."},
	{[]string{"-np", "1", "true", ":", "-np", "1", "--detach", "true"}, "Flags of the whole job go before the first program."},
	{[]string{"worker", "--cluster-key-file", "gone"}, "Make a key as the hint says, and copy it to every host."},
	{[]string{"worker", "--cluster-key-file", "open.key"}, "The key file may be read by its owner alone: `chmod 600`. systemd's unit reads it as root."},
	{[]string{"worker", "--cluster-key-file", "short.key"}, "The file has no key as the hint makes it: 32 random bytes in base64."},
	{[]string{"worker", "--cluster-key-file", "word.key"}, "The file has words that somebody has chosen. Make a key as the hint says."},
	{[]string{"worker", "--cluster-key-file", "same.key"}, "The file has a text that repeats itself. Make a key as the hint says."},
	{[]string{"worker", "--cluster-key-file", "many.key"}, "A key file has one key, and a second one [while it is replaced](guides/clusters.md#change-the-key)."},
	{[]string{"worker", "--cluster-key-file", "good.key", "--user", "nobody-has-this-name"}, "`--user` takes the name of a user of this host, and root starts the daemon."},
	{[]string{"worker", "--cluster-key-file", "good.key", "--listen", "[::"}, "`--listen ADDRESS:PORT`, as in `--listen :7575`."},
}

// other is an error that is not about the command line: how the code words it, how it may read, and what to do.
type other struct{ said, reads, means string }

var others = []other{
	{"the daemon is gorun %s, this is %s", "host1:7575: reserve slots: the daemon is gorun 0.2.0, this is 0.1.0",
		"Launcher and resident daemons have different versions. Install one version on all of them: [Upgrade](guides/clusters.md#upgrade)."},
	{"the other side does not hold the key of this cluster", "host1:7575: authenticate: the other side does not hold the key of this cluster",
		"The key file here differs from that of the daemon, or `--cluster` names a daemon of another cluster. Compare them by `sha256sum`."},
	{"the daemon is being stopped", "host1:7575: reserve slots: the daemon is being stopped",
		"It drains. Name another host of the cluster."},
	{"the daemons do not agree on who keeps the queue", "ask host1:7575 for jobs: the daemons do not agree on who keeps the queue",
		"Hosts of the cluster were lost or cut off a moment ago. Ask again after half a minute; then look at the network between the hosts."},
	{"another launcher has taken the job over", "another launcher has taken the job over",
		"This launcher was away for longer than the job's lease, and another host carries the job on: `gorun ps --cluster …` shows where."},
	{"find this binary: %w", "find this binary: no such file or directory",
		"gorun was removed or replaced while it ran, and it copies itself to hosts. Start it again."},
}

// refusals are the rows of the table: message and what to do.
func refusals(t *testing.T) (rows [][2]string) {
	t.Helper()
	for _, s := range samples {
		message, _ := refused(t, s.args)
		rows = append(rows, [2]string{message, s.means})
	}
	shown := slices.Clone(rows)
	for _, text := range mistakes(t) {
		means := remedies[text]
		if means == "" && slices.ContainsFunc(shown, func(row [2]string) bool { return skeleton(text).MatchString(row[0]) }) {
			continue // a sample has more
		}
		rows = append(rows, [2]string{text, means})
	}
	slices.SortFunc(rows, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

// skeleton matches the messages that a text with … stands for.
func skeleton(text string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".+") + "$")
}

// aKey is the text of a key file.
const aKey = "6f1f900a73197ef609d212fdad3ab7c39b97936695744f2c1a23f3475c85a0c7"

// refused runs a command that is to be refused, and returns its error and its exit status.
func refused(t *testing.T, args []string) (message string, code int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"hosts.txt": "host1 slot=2\n", "empty.txt": "", "short.key": "c2VjcmV0", "word.key": strings.Repeat("key ", 20),
		"same.key": strings.Repeat("key+", 20), "good.key": aKey, "open.key": aKey, "many.key": aKey + "\n" + aKey + "\n" + aKey} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "open.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // what is not refused would run
	defer cancel()
	cmd := exec.CommandContext(ctx, "gorun", args...)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GORUN_ALLOW_ROOT=1"}
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if message, ok := strings.CutPrefix(line, "gorun: error: "); ok {
			return strings.TrimSpace(message), cmd.ProcessState.ExitCode()
		}
	}
	t.Errorf("gorun %q is not refused: %s", args, out)
	return "", 0
}

// TestRefusalsAreExplained: each message about a command line has a remedy, or a sample that has one; no remedy is left
// over; samples are refused with status 2; the other errors are as in the code.
func TestRefusalsAreExplained(t *testing.T) {
	messages := mistakes(t)
	if len(messages) < 60 {
		t.Errorf("found %d messages only: this test looks in the wrong places", len(messages))
	}
	for _, row := range refusals(t) {
		if row[0] == "" || len(row[1]) < 10 {
			t.Errorf("%q: nothing says what to do: add it to remedies, or a command to samples", row[0])
		}
	}
	for text := range maps.Keys(remedies) {
		if !slices.Contains(messages, text) {
			t.Errorf("%q has a remedy, and nothing says it", text)
		}
	}
	for _, s := range samples {
		if _, code := refused(t, s.args); code != 2 {
			t.Errorf("gorun %q exits with %d", s.args, code)
		}
	}
	var code strings.Builder
	for _, dir := range spoken {
		for name := range parsed(t, dir, false) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	for _, o := range others {
		if !strings.Contains(code.String(), strconv.Quote(o.said)) {
			t.Errorf("%q is explained, and nothing says it", o.said)
		} else if !regexp.MustCompile(verb.ReplaceAllString(o.said, ".+")).MatchString(o.reads) {
			t.Errorf("%q does not read %q", o.said, o.reads)
		}
	}
}

// refusalTables are the tables of docs/troubleshooting.md.
func refusalTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n## Clusters and daemons\n\n| gorun: error: | what to do |\n|---|---|\n")
	for _, o := range others {
		fmt.Fprintf(&b, "| %s | %s |\n", escaped(o.reads), o.means)
	}
	b.WriteString("\n## Command lines that are refused\n\nThese end with exit status 2, and nothing was started. `…` stands for what was given.\n\n| gorun: error: | what to do |\n|---|---|\n")
	for _, m := range refusals(t) {
		fmt.Fprintf(&b, "| %s | %s |\n", escaped(m[0]), m[1])
	}
	return b.String()
}

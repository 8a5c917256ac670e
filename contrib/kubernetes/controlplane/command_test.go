package controlplane

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCommand: gorun --kubernetes makes JobSets of command lines.
func TestCommand(t *testing.T) {
	e := newEngine(t)
	e.define()
	e.jobSets("jobset", jobsetModule)
	for name, f := range map[string]func(e *engine){"command": testCommand, "status": testStatus, "interrupted": testInterrupted,
		"left-alone": testLeftAlone, "taken-away": testTakenAway, "permission": testPermission,
		"brought": testBrought, "deadline": testDeadline, "unread": testUnread, "same-name": testSameName, "template": testTemplate} {
		e.within(name, f)
	}
	testRefused(e)
}

// command is a gorun --kubernetes.
type command struct {
	training
	cmd    *exec.Cmd
	stderr string // the file
}

// command starts gorun --kubernetes with the image of the tests, as a user of the API server.
func (e *engine) command(token string, args ...string) *command {
	e.Helper()
	c := e.prepare(token, args...)
	c.start()
	return c
}

// prepare makes a command that is not started yet.
func (e *engine) prepare(token string, args ...string) *command {
	e.Helper()
	c := &command{cmd: exec.Command(os.Getenv("GORUN_E2E_BINARY"), append([]string{"--kubernetes", "--namespace", e.namespace, "--image", image}, args...)...)}
	c.cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfigOf(token), "PATH="+os.Getenv("GORUN_KUBERNETES")+":"+filepath.Join(os.Getenv("CONTROLPLANE"), "uv/bin")+":"+os.Getenv("PATH"))
	c.engine, c.wait = e, c.cmd.Wait
	return c
}

// file makes a file for output.
func (c *command) file(suffix string) *os.File {
	c.Helper()
	file, err := os.CreateTemp(c.logs, c.namespace+"_command_*."+suffix)
	check(c, err)
	return file
}

// start starts gorun. Its output goes to files, but for standard output that goes elsewhere.
func (c *command) start() {
	c.Helper()
	errs, out := c.file("err"), c.file("out")
	defer errs.Close()
	defer out.Close()
	c.stderr, c.log = errs.Name(), out.Name()
	c.cmd.Stderr = errs
	if c.cmd.Stdout == nil {
		c.cmd.Stdout = out
	}
	check(c, c.cmd.Start())
	c.Cleanup(func() { c.cmd.Process.Kill() })
}

// says reports whether standard error of gorun matches.
func (c *command) says(pattern string) bool {
	return regexp.MustCompile("(?m)" + pattern).MatchString(c.said())
}

// said is what gorun has written to standard error.
func (c *command) said() string {
	text, _ := os.ReadFile(c.stderr)
	return string(text)
}

// wrong reports output that is not as it should be.
func (c *command) wrong() {
	c.Helper()
	c.Errorf("gorun prints %s and says: %s", tail([]byte(c.text()), 2000), c.said())
}

// endsWith waits for the end of gorun and checks its status.
func (c *command) endsWith(status int) {
	c.Helper()
	c.cmd.Wait()
	if got := c.cmd.ProcessState.ExitCode(); got != status {
		c.Errorf("gorun ended with %d, want %d", got, status)
	}
}

// noneLeft waits until the namespace has only what was there before.
func (e *engine) noneLeft() {
	e.Helper()
	for version, kinds := range map[string][]string{"jobset.x-k8s.io/v1alpha2": {"JobSet"}, "batch/v1": {"Job"}, "v1": {"Pod", "Service", "Secret"},
		"networking.k8s.io/v1": {"NetworkPolicy"}, "policy/v1": {"PodDisruptionBudget"}} {
		for _, kind := range kinds {
			var names []string
			path := e.path(version, kind)
			e.await("end of each "+kind, func() bool {
				var list struct{ Items []pod }
				check(e, json.Unmarshal([]byte(e.must("GET", path, "")), &list))
				names = nil
				for _, item := range list.Items {
					if item.Metadata.Name != "gorun-key" {
						names = append(names, item.Metadata.Name)
					}
				}
				return len(names) == 0
			})
		}
	}
}

// testCommand: a command line trains, its variables reach the ranks and are in no JobSet, and nothing is left.
func testCommand(e *engine) {
	c := e.command("tester", append([]string{"-np", "2", "-x", "TOKEN=hush"}, program(20)...)...)
	e.await("JobSet", func() bool {
		return strings.Contains(e.must("GET", e.path("jobset.x-k8s.io/v1alpha2", "JobSet"), ""), `"train.py`) || c.says("workers with")
	})
	if text := e.must("GET", e.path("jobset.x-k8s.io/v1alpha2", "JobSet"), ""); strings.Contains(text, "hush") {
		e.Errorf("the JobSet has the value of a variable: %s", text)
	}
	c.end(2)
	if !c.says(`^gorun: JobSet gorun-\w+ in namespace command: a launcher and 2 workers with 1 slots each$`) || c.says("error|warning") {
		c.wrong()
	}
	e.noneLeft()
}

// testStatus: what a rank prints is there, in full, and its status is gorun's.
func testStatus(e *engine) {
	const script = `[ "$RANK" = 1 ] || exec sleep 100; echo "out $TOKEN '$(echo HOME)'"; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo wrong >&2; exit 3`
	c := e.command("tester", "-np", "2", "--slots-per-host", "2", "--no-tag-output", "--only-ranks", "1", "-x", "TOKEN=hush $(HOME) $$", "sh", "-c", script)
	c.endsWith(3)
	text := c.text()
	if !strings.Contains(text, "out hush $(HOME) $$ 'HOME'\nline 0\n") || !strings.Contains(text, "wrong\n") || strings.Count(text, "\nline ") != 2000 {
		c.wrong()
	}
	if !c.says(`2 slots each`) {
		e.Error("the ranks do not share a pod")
	}
	e.noneLeft()
}

// testInterrupted: Ctrl-C ends the ranks as everywhere, and nothing is left.
func testInterrupted(e *engine) {
	c := e.command("tester", append([]string{"-np", "2"}, unending()...)...)
	c.awaitWorld(2)
	c.cmd.Process.Signal(syscall.SIGINT)
	c.endsWith(130)
	e.noneLeft()
}

// testLeftAlone: the job of a gorun that was killed goes on to its end, and Kubernetes deletes it.
func testLeftAlone(e *engine) {
	c := e.command("tester", append([]string{"-np", "2", "--kubernetes-options", "ttl=5s,name=alone"}, program(100)...)...)
	c.awaitWorld(2)
	c.cmd.Process.Kill()
	c.cmd.Wait()
	e.await("end of the JobSet", func() bool {
		return strings.Contains(e.must("GET", e.path("jobset.x-k8s.io/v1alpha2", "JobSet"), ""), `"terminalState":"Completed"`)
	})
	e.noneLeft()
}

// testBrought: pods whose image has neither get a program, its packages and its variables from the machine of their user. The status is that
// of the job. An eviction of the launcher's pod costs the job nothing, and Ctrl-C ends it.
func testBrought(e *engine) {
	dir := e.TempDir()
	for name, text := range map[string]string{".env": "NAME=secret\n", "helper.py": "X = 7\n", "requirements.txt": "--no-index\n--find-links .\nbrought\n",
		"train.py": `import os, sys, brought, helper
print("has", helper.X, os.environ["TOKEN"], os.environ["NAME"], "LEFT" in os.environ, brought.__file__.startswith(sys.prefix), flush=True)
sys.exit(3)`, "wait.py": "import time\nprint('begun', flush=True)\ntime.sleep(1000)\n"} {
		check(e, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	wheel := exec.Command("sh", "-ec", `mkdir brought-1.dist-info; cd brought-1.dist-info; touch RECORD ../brought.py; printf 'Metadata-Version: 2.1\nName: brought\nVersion: 1\n' >METADATA
printf 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >WHEEL; cd ..
python3 -m zipfile -c brought-1-py3-none-any.whl brought.py brought-1.dist-info; rm -r brought.py brought-1.dist-info`)
	wheel.Dir = dir
	if out, err := wheel.CombinedOutput(); err != nil {
		e.Fatalf("make a wheel: %v: %s", err, out)
	}
	brought := func(args ...string) *command {
		c := e.prepare("tester", append([]string{"-np", "2", "--ship"}, args...)...)
		c.cmd.Dir, c.cmd.Env = dir, append(c.cmd.Env, "LEFT=here")
		c.start()
		return c
	}
	c := brought("--python", "requirements.txt", "--env-file", ".env", "-x", "TOKEN=hush", "python3", "train.py")
	c.endsWith(3)
	if strings.Count(c.text(), "has 7 hush secret False True\n") < 1 || c.says("warning|127.0.0.1") {
		c.wrong()
	}
	e.noneLeft()
	c = brought("python3", "none.py")
	c.endsWith(2)
	if c.says("JobSet") || !c.says(`error: --ship: none.py is not in `) {
		e.Error("a script that is nowhere is looked for in pods")
	}
	c = brought("--kubernetes-options", "name=stays", "python3", "wait.py")
	begun := func(n int) func() bool {
		return func() bool { return strings.Count(c.text(), "begun\n") == n }
	}
	e.await("ranks", begun(2))
	e.must("DELETE", "/apis/policy/v1/namespaces/"+e.namespace+"/poddisruptionbudgets/stays-launcher", "")
	e.evict(e.pods("jobset.sigs.k8s.io/replicatedjob-name%3Dlauncher")[0].Metadata.Name)
	e.await("output once more", begun(4))
	began := time.Now()
	c.cmd.Process.Signal(syscall.SIGINT)
	c.endsWith(130)
	e.noneLeft()
	if took := time.Since(began); took > time.Minute {
		e.Errorf("Ctrl-C took %v", took)
	}
}

// testTakenAway: gorun shows the output of a launcher that begins again after an eviction, too.
func testTakenAway(e *engine) {
	e.must("POST", "/api/v1/namespaces/"+e.namespace+"/configmaps", `{"metadata":{"name":"unused"}}`)
	c := e.command("tester", append([]string{"-np", "1", "--kubernetes-options", "name=again"}, unending()...)...)
	c.awaitWorld(1)
	selector := "jobset.sigs.k8s.io/replicatedjob-name%3Dlauncher"
	e.must("DELETE", "/apis/policy/v1/namespaces/"+e.namespace+"/poddisruptionbudgets/again-launcher", "")
	worlds := len(c.find(`is rank 0 of 1 from`))
	e.evict(e.pods(selector)[0].Metadata.Name)
	e.await("note", func() bool {
		return c.says(`^gorun: warning: the launcher's pod again-launcher-\S+ was taken away$`) && c.says(`^gorun: the launcher begins again, from the program's last checkpoint, in pod again-launcher-`)
	})
	e.await("another world", func() bool { return len(c.find(`is rank 0 of 1 from`)) > worlds })
	c.enough("jobset.sigs.k8s.io/replicatedjob-name%3Dworker")
	c.endsWith(0)
	e.noneLeft()
}

// testDeadline: the end of a job by its deadline is an error, and its output is shown once.
func testDeadline(e *engine) {
	c := e.command("tester", "-np", "1", "--no-tag-output", "--kubernetes-options", "deadline=15s", "sh", "-c", "echo begun; exec sleep 100")
	c.endsWith(1)
	if !c.says(`^gorun: error: JobSet \S+ has failed: `) || c.says("begins again") || strings.Count(c.text(), "begun") != 1 {
		c.wrong()
	}
	e.noneLeft()
}

// testUnread: a job whose output nobody reads ends.
func testUnread(e *engine) {
	c := e.prepare("tester", "-np", "1", "yes")
	out, err := c.cmd.StdoutPipe()
	check(e, err)
	c.start()
	_, err = io.ReadFull(out, make([]byte, 100))
	check(e, err)
	out.Close()
	c.endsWith(1)
	if !c.says(`^gorun: error: write output: .*broken pipe`) {
		c.wrong()
	}
	e.noneLeft()
}

// testSameName: what hindered a JobSet does not hinder the next one of that name.
func testSameName(e *engine) {
	c := e.command("tester", "-np", "1", "--kubernetes-options", "name=same,service-account=nobody", "true")
	c.endsWith(1)
	c = e.command("tester", "-np", "1", "--kubernetes-options", "name=same", "true")
	if c.endsWith(0); c.says("error") {
		c.wrong()
	}
	e.noneLeft()
}

// testTemplate: pods are as --pod-template has them, here those of a user without a name, as OpenShift chooses it.
func testTemplate(e *engine) {
	path := filepath.Join(e.TempDir(), "pods.yaml")
	for pool, status := range map[string]int{"kubernetes.io/hostname: node1": 0, "pool: gpu": 1} {
		text := "metadata: {annotations: {seen: here}}\nspec: {securityContext: {runAsUser: 1000650000, runAsGroup: 1000650000, fsGroup: 1000650000}, nodeSelector: {" + pool + "}}"
		check(e, os.WriteFile(path, []byte(text), 0o600))
		c := e.command("tester", "-np", "2", "--pod-template", path, "--connect-retry", "30s", "--no-tag-output", "id", "-u")
		if status == 1 { // they stay while no node takes them
			e.await("annotated pods", func() bool {
				return strings.Count(e.must("GET", e.path("v1", "Pod"), ""), `"seen":"here"`) == 3
			})
		}
		c.endsWith(status)
		if got := strings.Count(c.text(), "1000650000\n"); status == 0 && got != 2 || status == 1 && !c.says("no node takes it: .*node affinity/selector") {
			c.wrong()
		}
		e.noneLeft()
	}
}

// testPermission: a user without rights gets an error, and role.yaml grants all the rights that a job takes.
func testPermission(e *engine) {
	c := e.command("guest", "-np", "1", "true")
	c.endsWith(1)
	if !c.says(`^gorun: error: create jobset: jobsets\S* is forbidden: User "guest" cannot create .*\ngorun: hint: contrib/kubernetes/role.yaml .*$`) {
		c.wrong()
	}
	e.noneLeft()
	e.create("role.yaml")
	e.must("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+e.namespace+"/rolebindings", `{"metadata":{"name":"gorun"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"gorun"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"guest"}]}`)
	c = e.command("guest", "-np", "1", "echo", "let in")
	c.endsWith(0)
	if !strings.Contains(c.text(), "let in") || c.says("warning") {
		c.wrong()
	}
	e.must("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+e.namespace+"/rolebindings/gorun", "")
	e.noneLeft()
}

// testRefused: why pods are not there is one line and a hint, and nothing is left.
func testRefused(e *engine) {
	for name, tc := range map[string]struct {
		before func(e *engine)
		args   []string
		want   string
	}{
		"absent-image": {args: []string{"--image", "registry.example/other:1"},
			want: `error: \S+: no image registry.example/other:1: .* not found\ngorun: hint: push it, .*`},
		"used-quota": {before: func(e *engine) {
			e.must("POST", "/api/v1/namespaces/"+e.namespace+"/resourcequotas", `{"metadata":{"name":"one"},"spec":{"hard":{"pods":"1"}}}`)
			e.await("quota", func() bool {
				return strings.Contains(e.must("GET", "/api/v1/namespaces/"+e.namespace+"/resourcequotas/one", ""), `"used":{"pods"`)
			})
		}, want: `error: Job \S+: exceeded quota: one, .*\ngorun: hint: kubectl describe quota .*`},
		"too-large": {args: []string{"--kubernetes-options", "cpu=1000"}, want: `error: \S+worker\S+: no node takes it: .*Insufficient cpu.*\ngorun: hint: free some, .*`},
		"no-account": {args: []string{"--kubernetes-options", "service-account=nobody"},
			want: `error: Job \S+: .*serviceaccount "nobody" not found\ngorun: hint: --kubernetes-options service-account=NAME .*`},
		"no-namespace": {args: []string{"--namespace", "nowhere"}, want: `error: create jobset: namespaces "nowhere" not found\ngorun: hint: kubectl create namespace nowhere, .*`},
	} {
		e.within(name, func(e *engine) {
			if tc.before != nil {
				tc.before(e)
			}
			c := e.command("tester", append(append([]string{"-np", "2", "--connect-retry", "8s"}, tc.args...), "true")...)
			c.endsWith(1)
			if !c.says("^gorun: "+tc.want+"$") || strings.Count(c.said(), "gorun: error: ") != 1 {
				c.wrong()
			}
			e.noneLeft()
		})
	}
}

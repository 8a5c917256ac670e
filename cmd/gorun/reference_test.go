//go:build linux

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/urfave/cli/v2"

	"gorun/contrib/must"
	"gorun/launcher/output"
	"gorun/topology/facts"
	"gorun/worker/rankenv"
)

const docs = "../../docs/"

// TestReference holds the pages of the reference, and parts of others, against the code. UPDATE_REFERENCE=1 writes them anew
// (make reference).
func TestReference(t *testing.T) {
	pages := map[string]string{
		"reference/commands.md":        commandsPage(),
		"reference/environment.md":     environmentPage(),
		"reference/topology-file.md":   topologyPage(),
		"reference/events.schema.json": eventsSchema(t),
	}
	for name, want := range pages {
		hold(t, filepath.Join(docs, name), want)
	}
	holdPart(t, filepath.Join(docs, "reference/exit-status.md"), "exit codes", exitCodeTable())
	holdPart(t, filepath.Join(docs, "reference/events.md"), "events", eventsTable())
}

// hold compares a file with what it should be, or writes it.
func hold(t *testing.T, file, want string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if os.Getenv("UPDATE_REFERENCE") != "" {
		err = os.WriteFile(file, []byte(want), 0o644)
		got = []byte(want)
	}
	must.Do(t, err)
	if string(got) != want {
		t.Errorf("%s is older than the code: make reference writes it anew", file)
	}
}

// holdPart is hold for the part of a file between two comments.
func holdPart(t *testing.T, file, name, want string) {
	t.Helper()
	text := must.Read(t, file)
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no part between %q and %q", file, begin, end)
	}
	hold(t, file, before+begin+want+end+after)
}

// written ends each page that is made from code.
const written = "\nThis page is written by `make reference`.\n"

// commandsPage has every command and flag.
func commandsPage() string {
	app := newApp(nil)
	var b strings.Builder
	b.WriteString("# Commands and flags\n\n`gorun [flags] program [arguments]` starts a job. Flags take one dash or two and go before the program; the last one counts if a flag is\n" +
		"given twice. `gorun help TOPIC` shows a part of this page in a terminal. Flags of other launchers are in the last sections.\n")
	for _, topic := range topics {
		if flags := topic.flagsOf(app.Flags); len(flags) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s", topic.title, markdownParagraphs(topic.about))
			flagTable(&b, flags)
		}
	}
	for _, c := range visibleCommands(app) {
		fmt.Fprintf(&b, "\n## gorun %s\n\n%s.\n\n    %s\n\n", c.Name, upper(strings.TrimSuffix(c.Usage, ".")), cmp.Or(c.UsageText, "gorun "+c.Name))
		b.WriteString(markdownParagraphs(c.Description))
		own, shared := ownFlags(visibleFlags(c))
		if len(own) > 0 {
			flagTable(&b, own)
		}
		if c.Name == "rsh-agent" || len(shared) == 0 {
			continue
		}
		var names []string
		for _, f := range flagInfos(shared) {
			names = append(names, "`"+f.names[0]+"`")
		}
		fmt.Fprintf(&b, "\nIt shares these flags with launches: %s.\n", strings.Join(names, ", "))
	}
	return b.String() + written
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// markdownParagraphs writes a text of help as Markdown: its indented lines are code.
func markdownParagraphs(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		switch indented := strings.HasPrefix(line, "  "); {
		case line == "":
		case indented:
			if !code && b.Len() > 0 {
				b.WriteString("\n")
			}
			b.WriteString("  " + line + "\n")
			code = true
		default:
			if b.Len() > 0 {
				b.WriteString("\n")
			}
			b.WriteString(escaped(line) + "\n")
			code = false
		}
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// escaped is text in Markdown, in which angle brackets, bars and stars are what they are.
func escaped(s string) string {
	return strings.NewReplacer("<", "&lt;", "|", "\\|", "*", "\\*", "_", "\\_").Replace(s)
}

func flagTable(b *strings.Builder, flags []cli.Flag) {
	b.WriteString("| flag | meaning | default | variable |\n|---|---|---|---|\n")
	for _, f := range flagInfos(flags) {
		names := make([]string, len(f.names))
		for i, name := range f.names {
			names[i] = "`" + strings.TrimSpace(name) + "`"
		}
		value := ""
		if f.value != "" {
			value = " " + escaped(f.value)
		}
		env := ""
		if len(f.env) > 0 {
			env = "`" + strings.Join(f.env, "`, `") + "`"
		}
		fmt.Fprintf(b, "| %s%s | %s | %s | %s |\n", strings.Join(names, ", "), value, escaped(f.usage), escaped(f.preset), env)
	}
}

// environmentPage has every variable that gorun reads or ranks get.
func environmentPage() string {
	var b strings.Builder
	b.WriteString("# Environment variables\n\n## Variables that gorun reads\n")
	for _, g := range userVariables(newApp(nil).Flags) {
		fmt.Fprintf(&b, "\n### %s\n\n| variable | meaning |\n|---|---|\n", escaped(g.title))
		for _, v := range g.list {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(v.names, "`, `"), escaped(v.meaning))
		}
	}
	b.WriteString("\n## Variables that ranks get\n\nA rank inherits the variables of its machine and those that gorun passes on from the shell in which it was started, and gorun\n" +
		"adds these. `gorun --dry-run` shows their values before a job. The rule says who wins if you set a variable yourself. With\n" +
		"**place**, what you set for a program (`-x NAME=value`) wins over gorun. With **fixed** gorun wins, and with **default** you do.\n\n" +
		"| variable | defined by | rule | set for |\n|---|---|---|---|\n")
	for _, v := range rankenv.Table() {
		when := cmp.Or(v.When, "every rank")
		if v.Note != "" {
			when += "; " + v.Note
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, v.Contract, v.Rule, when)
	}
	return b.String() + written
}

func topologyPage() string {
	var b strings.Builder
	b.WriteString("# The topology file\n\n`--topology FILE` reads what machines do not tell from a YAML file, and `gorun topo --measure --save FILE` and `--save-topology FILE`\n" +
		"write one. [Topology and binding](../guides/topology.md) says what follows from it.\n\n```yaml\n" + facts.Example + "```\n")
	in := ""
	for _, k := range facts.Keys {
		if k.In != in {
			in = k.In
			fmt.Fprintf(&b, "\n## Keys of %s\n\n| key | value | meaning |\n|---|---|---|\n", in)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, k.Value, escaped(k.Meaning))
	}
	return b.String() + "\nA key that gorun does not know is an error. A fact about a device that the host lacks is one, too.\n" + written
}

func exitCodeTable() string {
	var b strings.Builder
	b.WriteString("| code | meaning |\n|---|---|\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "| %s | %s |\n", c.code, c.meaning)
	}
	return b.String()
}

// eventKinds are the events by name, with an example of each and when it comes, in the order of the documentation.
var eventKinds = []struct {
	name string
	of   any
	when string
}{
	{"job", jobEvent{}, "the first; not of elastic jobs"},
	{"started", startedEvent{}, "a rank runs; it precedes the first `output` of the rank"},
	{"output", output.LineEvent{}, "a line that a rank wrote"},
	{"note", output.NoteEvent{}, "a line of gorun's own"},
	{"exited", exitedEvent{}, "a rank has ended"},
	{"host", hostEvent{}, "a change in whether a host is heard"},
	{"edge", edgeEvent{}, "what the job measured between two hosts"},
	{"end", endEvent{}, "the last"},
}

func eventsTable() string {
	var b strings.Builder
	b.WriteString("| event | fields |\n|---|---|\n")
	for _, kind := range eventKinds {
		var fields []string
		for field := range reflect.TypeOf(kind.of).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if about := field.Tag.Get("jsonschema"); about != "" {
				fields = append(fields, "`"+name+"` ("+about+")")
			} else if name != "event" {
				fields = append(fields, "`"+name+"`")
			}
		}
		fmt.Fprintf(&b, "| `%s`: %s | %s |\n", kind.name, kind.when, strings.Join(fields, ", "))
	}
	return b.String()
}

// eventSchema returns the schema of all events: of each, by its name.
func eventSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	all := &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", Title: "An event of gorun --json", Type: "object", Required: []string{"event"},
	}
	for _, kind := range eventKinds {
		s, err := jsonschema.ForType(reflect.TypeOf(kind.of), nil)
		must.Do(t, err)
		s.Properties["event"] = &jsonschema.Schema{Const: jsonschema.Ptr[any](kind.name)}
		s.Title, s.Description = kind.name, kind.when
		s.AdditionalProperties = nil // fields may be added
		all.AnyOf = append(all.AnyOf, s)
	}
	return all
}

func eventsSchema(t *testing.T) string {
	t.Helper()
	text, err := json.MarshalIndent(eventSchema(t), "", "  ")
	must.Do(t, err)
	return string(text) + "\n"
}

// jobEvents returns what a job writes to standard output, however it ends.
func jobEvents(t *testing.T, args []string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gorun", args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.Output()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return out
}

// TestEventsFollowSchema: the events of jobs match the schema in the docs, and have every field that it requires.
func TestEventsFollowSchema(t *testing.T) {
	text := must.Read(t, filepath.Join(docs, "reference/events.schema.json"))
	var schema jsonschema.Schema
	must.Do(t, json.Unmarshal(text, &schema))
	valid, err := schema.Resolve(nil)
	must.Do(t, err)
	seen := map[string]bool{}
	for _, args := range [][]string{
		{"-np", "2", "--json", "sh", "-c", "echo hello; sleep .2"},
		{"-np", "1", "--json", "sh", "-c", "kill -9 $$"},
		{"-np", "1", "--min-np", "1", "-H", "localhost:1", "--json", "true"},
	} {
		for line := range bytes.Lines(jobEvents(t, args)) {
			var event map[string]any
			if err := json.Unmarshal(line, &event); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if err := valid.Validate(event); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			seen[fmt.Sprint(event["event"])] = true
		}
	}
	for _, name := range []string{"job", "started", "output", "exited", "end"} {
		if !seen[name] {
			t.Errorf("no event %s: this test reads nothing", name)
		}
	}
	for _, wrong := range []map[string]any{{"event": "job"}, {"event": "nonsense"}, {"event": "end", "code": "0"}} {
		if valid.Validate(wrong) == nil {
			t.Errorf("the schema takes %v", wrong)
		}
	}
}

// Package hosts reads host lists: the -H flag, hostfiles in the dialects of Horovod, Open MPI, MPICH and DeepSpeed, and
// the allocations of batch schedulers (Slurm, LSF, PBS, SGE) and of Kubeflow's MPIJobs.
//
// ParseList and ParseFile read what the user wrote; Allocated finds what a scheduler assigned. A ListedHost is a name
// and a number of slots, 0 where the list has none. The package only parses; nothing is looked up or contacted.
package hosts

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// ListedHost is one machine of a host list.
type ListedHost struct {
	Name  string // as given, including user@
	Slots int    // 0 if the list has no number
}

// MaxSlots bounds the slots of one host; a greater number is taken for a typing error.
const MaxSlots = 4096

// ErrNone means that a hostfile has no hosts with slots.
var ErrNone = errors.New("parse hostfile: it names no host that has slots")

// maxHosts bounds the expansion of a range.
const maxHosts = 16384

// ParseList reads a comma-separated list as given to -H: name, name:slots, user@name:slots,
// [IPv6]:slots, and ranges as in node[01-16,20]:4. A host named twice gets the sum of its slots.
func ParseList(list string) ([]ListedHost, error) {
	var out []ListedHost
	for _, entry := range splitOutside(list, ',') {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			return nil, fmt.Errorf("parse hosts %q: empty entry", list)
		}
		name, slots, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("parse hosts: %w", err)
		}
		names, err := expand(name)
		if err != nil {
			return nil, fmt.Errorf("parse hosts: %w", err)
		}
		if len(out)+len(names) > maxHosts {
			return nil, fmt.Errorf("parse hosts: more than %d hosts", maxHosts)
		}
		for _, n := range names {
			out = append(out, ListedHost{n, slots})
		}
	}
	return merge(out), nil
}

// ParseFile reads a hostfile. Each line names one host in any of these dialects; what follows # is a
// comment, blank lines are skipped:
//
//	host1 slots=4             Horovod, Open MPI, DeepSpeed
//	host1 slots = 4           the same
//	host1 slots=4 max_slots=8 Open MPI (max_slots and max-slots are accepted and not used)
//	host1 user=me             Open MPI (username as well), MPICH
//	host1:4 binding=…         MPICH, Intel MPI (binding is accepted and not used)
//	host1                     one slot is assumed where nothing says more
//	host1 slots=0, host1:0    none for now, as Open MPI and Horovod's discovery scripts say: the line is passed over
func ParseFile(text string) ([]ListedHost, error) {
	var out []ListedHost
	text = strings.TrimPrefix(text, "\ufeff") // Windows editors write a byte order mark
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(aroundEquals.Replace(line)); len(fields) > 0 {
			hosts, err := parseLine(fields)
			if err != nil {
				return nil, fmt.Errorf("parse hostfile line %d: %w", i+1, err)
			}
			out = append(out, hosts...)
		}
	}
	if len(out) == 0 {
		return nil, ErrNone
	}
	return merge(out), nil
}

// parseLine reads the words of a line: a host, and what is said of it.
func parseLine(fields []string) (out []ListedHost, err error) {
	entry, none := strings.CutSuffix(fields[0], ":0")
	if none && isIPv6(fields[0][strings.IndexByte(fields[0], '@')+1:]) {
		entry, none = fields[0], false
	}
	name, slots, err := parseEntry(entry)
	if err != nil {
		return nil, err
	}
	for _, f := range fields[1:] {
		key, val, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value", f)
		}
		switch key {
		case "slots", "count", "cpu":
			if none = val == "0"; !none {
				slots, err = parseSlots(val)
			}
		case "max_slots", "max-slots":
			_, err = parseSlots(val)
		case "user", "username":
			if !aUser.MatchString(val) {
				err = fmt.Errorf("%q is not a user", val)
			} else if !strings.Contains(name, "@") {
				name = val + "@" + name
			}
		case "binding":
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return nil, err
		}
	}
	names, err := expand(name)
	for _, n := range names {
		if !none {
			out = append(out, ListedHost{n, slots})
		}
	}
	return out, err
}

// aroundEquals joins "slots = 4". One pass is enough, as Fields ignores extra blanks.
var aroundEquals = strings.NewReplacer(" = ", "=", " =", "=", "= ", "=")

// parseEntry splits name and slots of one entry; slots is 0 if not given.
func parseEntry(entry string) (name string, slots int, err error) {
	name = entry
	if i := strings.LastIndexByte(entry, ':'); i >= 0 && !isIPv6(unbracket(entry[strings.IndexByte(entry, '@')+1:])) {
		name = entry[:i]
		if slots, err = parseSlots(entry[i+1:]); err != nil {
			return "", 0, fmt.Errorf("%q: %w", entry, err)
		}
	}
	user, host, ok := strings.Cut(name, "@")
	if !ok {
		user, host = "", name
	}
	if ip := unbracket(host); isIPv6(ip) {
		host = ip
	}
	if ok && user == "" {
		return "", 0, fmt.Errorf("%q: no user before @", entry)
	}
	if ok && !aUser.MatchString(user) {
		return "", 0, fmt.Errorf("%q: %q is not a user", entry, user)
	}
	if !validName(host) {
		return "", 0, fmt.Errorf("%q is not a host name", entry)
	}
	if user != "" {
		host = user + "@" + host
	}
	return host, slots, nil
}

func parseSlots(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxSlots {
		return 0, fmt.Errorf("slots %q is not a number from 1 to %d", s, MaxSlots)
	}
	return n, nil
}

func unbracket(s string) string {
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]")
	}
	return s
}

func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6()
}

// A leading dash would read as an option to ssh.
var (
	// aUser matches possible login names, including those of a Windows domain.
	aUser = regexp.MustCompile(`^[\w.+\\][\w.+\\-]*$`)
	// aName matches possible host names, addresses, and ranges of names.
	aName = regexp.MustCompile(`^(?:[\w.]|\[[\w.,-]*\])(?:[\w.-]|\[[\w.,-]*\])*$`)
)

func validName(s string) bool { return aName.MatchString(s) || isIPv6(s) }

// expand turns node[01-03,7] into node01 node02 node03 node7; leading zeros give the width.
func expand(name string) ([]string, error) {
	open := strings.IndexByte(name, '[')
	if open < 0 {
		return []string{name}, nil
	}
	end := open + strings.IndexByte(name[open:], ']') // validName has checked that there is one
	tails, err := expand(name[end+1:])
	if err != nil {
		return nil, err
	}
	var out []string
	for part := range strings.SplitSeq(name[open+1:end], ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi-lo >= maxHosts {
			return nil, fmt.Errorf("%q: %q is not a range of numbers", name, part)
		}
		if len(out)+(hi-lo+1)*len(tails) > maxHosts {
			return nil, fmt.Errorf("%q: more than %d hosts", name, maxHosts)
		}
		for n := lo; n <= hi; n++ {
			for _, tail := range tails {
				out = append(out, fmt.Sprintf("%s%0*d%s", name[:open], len(from), n, tail))
			}
		}
	}
	return out, nil
}

// splitOutside splits at sep outside brackets.
func splitOutside(s string, sep byte) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch {
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		case s[i] == sep && depth <= 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// Same reports whether two names of a list are the same: case counts in the user's part only.
func Same(a, b string) bool { return folded(a) == folded(b) }

func folded(name string) string {
	at := strings.IndexByte(name, '@') + 1
	return name[:at] + strings.ToLower(name[at:])
}

// merge sums the slots of a host that is named more than once, at its first position. A line without slots then counts
// as one slot, as in Open MPI.
func merge(hosts []ListedHost) []ListedHost {
	at := map[string]int{}
	var out []ListedHost
	for _, h := range hosts {
		i, ok := at[folded(h.Name)]
		if !ok {
			at[folded(h.Name)] = len(out)
			out = append(out, h)
			continue
		}
		out[i].Slots = max(out[i].Slots, 1) + max(h.Slots, 1)
	}
	return out
}

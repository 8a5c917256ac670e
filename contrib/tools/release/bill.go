package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// bill writes which modules each binary has, in the form of SPDX 2.3. The binaries themselves name them.
func (r *release) bill() error {
	const id = "SPDXRef-DOCUMENT"
	var parts, relations []object
	modules := map[string]object{}
	for _, s := range systems {
		for _, p := range programs {
			own, used, err := r.parts(p.name, s)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, s, err)
			}
			parts = append(parts, own)
			relations = append(relations, relation(id, "DESCRIBES", own))
			for _, m := range used {
				modules[m["SPDXID"].(string)] = m
				relations = append(relations, relation(own["SPDXID"], "DEPENDS_ON", m))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		parts = append(parts, modules[name])
	}
	return r.writeJSON("gorun-"+r.version+".spdx.json", object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": id, "name": "gorun-" + r.version,
		"documentNamespace": "https://spdx.org/spdxdocs/gorun-" + r.version + "-" + r.revision,
		"creationInfo":      object{"created": r.date.Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: gorun-release"}},
		"packages":          parts, "relationships": relations,
	})
}

func relation(from any, kind string, to object) object {
	return object{"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to["SPDXID"]}
}

// part describes a program or a module. What is not said has to be called that.
func part(id, name, version, purpose, license string, more object) object {
	p := object{
		"SPDXID": "SPDXRef-" + regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(id, "-"), "name": name, "versionInfo": version,
		"primaryPackagePurpose": purpose, "licenseDeclared": license, "filesAnalyzed": false,
		"supplier": "NOASSERTION", "downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
	}
	maps.Copy(p, more)
	return p
}

// purl names a Go module for package managers.
func purl(path, version string) []object {
	return []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + strings.ToLower(path) + "@" + version}}
}

// parts describes a program, and the modules that its binary has. The checksum of a module is the h1 of go.sum, a SHA-256 of a
// list of its files.
func (r *release) parts(program string, s system) (own object, used []object, err error) {
	data, err := os.ReadFile(r.binary(program, s))
	if err != nil {
		return nil, nil, err
	}
	built, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	notices := r.notices[program]
	own = part(program+"-"+s.String(), program+"-"+s.String(), r.version, "APPLICATION", expression(notices), object{
		"supplier": "Organization: The gorun authors", "checksums": []object{{"algorithm": "SHA256", "checksumValue": sum(data)}}})
	version := strings.TrimPrefix(built.GoVersion, "go")
	used = []object{part("go", "stdlib", version, "LIBRARY", "BSD-3-Clause", object{
		"supplier": "Organization: The Go Authors", "downloadLocation": "https://go.dev/dl/go" + version + ".src.tar.gz", "externalRefs": purl("stdlib", version)})}
	licenses := licensesIn(notices)
	for _, m := range built.Deps {
		license, source := licenses[m.Path+" "+m.Version][0], licenses[m.Path+" "+m.Version][1]
		if license == "" {
			return nil, nil, fmt.Errorf("THIRD_PARTY_LICENSES lacks %s %s: go generate ./contrib/tools/licenses", m.Path, m.Version)
		}
		used = append(used, part(m.Path+"-"+m.Version, m.Path, m.Version, "LIBRARY", license, object{"comment": "go.sum: " + m.Sum,
			"downloadLocation": source, "externalRefs": purl(m.Path, m.Version)}))
	}
	return own, used, nil
}

// licensesIn returns the SPDX names of each module's licences and where its source is, by "path version", from the table
// of THIRD_PARTY_LICENSES.
func licensesIn(notices []byte) map[string][2]string {
	table, _, _ := bytes.Cut(notices, []byte("\n===="))
	found := map[string][2]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S.*)\n  (\S.*)\n  (https://.*)`).FindAllStringSubmatch(string(table), -1) {
		found[m[1]] = [2]string(m[2:])
	}
	return found
}

// expression returns the licences of a binary, gorun's own and its modules', as an SPDX expression.
func expression(notices []byte) string {
	names := []string{"MIT"}
	for _, of := range licensesIn(notices) {
		names = append(names, strings.Split(of[0], " AND ")...)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " AND ")
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// A checked file has a SHA-256, in hexadecimal digits.
type checked struct{ name, sum string }

// sums returns the checksum of each file that is there, but for that of checksums and its signature.
func (r *release) sums() (all []checked, err error) {
	entries, err := os.ReadDir(r.out)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "SHA256SUMS") || !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(r.file(e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, checked{e.Name(), sum(data)})
	}
	return all, err
}

// sum writes SHA256SUMS of every file of the release, in the form that sha256sum -c reads.
func (r *release) sum() error {
	all, err := r.sums()
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, c := range all {
		fmt.Fprintf(&list, "%s  %s\n", c.sum, c.name)
	}
	return os.WriteFile(r.file("SHA256SUMS"), list.Bytes(), 0o644)
}

// object is one of JSON.
type object = map[string]any

// writeJSON writes a file of the release.
func (r *release) writeJSON(name string, of object) error {
	return create(r.file(name), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(of)
	})
}

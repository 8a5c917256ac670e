package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bill writes which modules each binary has, in the form of SPDX 2.3. The binaries themselves name them.
func (r *release) bill() error {
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "gorun-" + r.version,
		Namespace: "https://spdx.org/spdxdocs/gorun-" + r.version + "-" + r.revision,
		Creation:  creation{Created: r.date.Format("2006-01-02T15:04:05Z"), Creators: []string{"Tool: gorun-release"}},
	}
	modules := map[string]part{}
	for _, s := range systems {
		for _, program := range slices.Sorted(maps.Keys(r.notices)) {
			own, used, err := r.parts(program, s, r.notices[program])
			if err != nil {
				return fmt.Errorf("%s for %s: %w", program, s, err)
			}
			d.Parts = append(d.Parts, own)
			d.Relations = append(d.Relations, relation{d.ID, "DESCRIBES", own.ID})
			for _, p := range used {
				modules[p.ID] = p
				d.Relations = append(d.Relations, relation{own.ID, "DEPENDS_ON", p.ID})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		d.Parts = append(d.Parts, modules[id])
	}
	return create(r.file("gorun-"+r.version+".spdx.json"), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(d)
	})
}

// parts describes a program, and the modules that its binary has.
func (r *release) parts(program string, s system, notices []byte) (own part, used []part, err error) {
	data, err := os.ReadFile(r.program(program, s))
	if err != nil {
		return own, nil, err
	}
	built, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return own, nil, err
	}
	sum := sha256.Sum256(data)
	own = part{ID: "SPDXRef-" + program + "-" + s.String(), Name: program + "-" + s.String(), Version: r.version, Purpose: "APPLICATION",
		Supplier: "Organization: The gorun authors", Location: "NOASSERTION", Concluded: "NOASSERTION", Declared: expression(notices),
		Copyright: "NOASSERTION", Checksums: []checksum{{"SHA256", hex.EncodeToString(sum[:])}}}
	goVersion := strings.TrimPrefix(built.GoVersion, "go")
	used = []part{{ID: "SPDXRef-go", Name: "stdlib", Version: goVersion, Purpose: "LIBRARY", Supplier: "Organization: The Go Authors",
		Location: "https://go.dev/dl/go" + goVersion + ".src.tar.gz", Concluded: "NOASSERTION", Declared: "BSD-3-Clause", Copyright: "NOASSERTION",
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/stdlib@" + goVersion}}}}
	licenses := licensesIn(notices)
	for _, m := range built.Deps {
		p, err := modulePart(m.Path, m.Version, m.Sum, licenses)
		if err != nil {
			return own, nil, err
		}
		used = append(used, p)
	}
	return own, used, nil
}

// modulePart describes a linked module. Its checksum is the h1 of go.sum, a SHA-256 of a list of its files.
func modulePart(path, version, sum string, licenses map[string]string) (part, error) {
	license, ok := licenses[path+" "+version]
	if !ok {
		return part{}, fmt.Errorf("THIRD_PARTY_LICENSES lacks %s %s: go generate ./contrib/tools/licenses", path, version)
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err != nil || len(raw) != sha256.Size {
		return part{}, fmt.Errorf("%s has a bad checksum %q", path, sum)
	}
	id := regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString("SPDXRef-"+path+"-"+version, "-")
	return part{ID: id, Name: path, Version: version, Purpose: "LIBRARY", Supplier: "NOASSERTION", Concluded: "NOASSERTION", Declared: license,
		Location: "https://proxy.golang.org/" + escape(path) + "/@v/" + escape(version) + ".zip", Copyright: "NOASSERTION",
		Comment:    "go.sum: " + sum,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + strings.ToLower(path) + "@" + version}}}, nil
}

// escape writes upper-case letters as the module proxy does.
func escape(s string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(s, func(c string) string { return "!" + strings.ToLower(c) })
}

// licensesIn returns the SPDX names of each module's licences, by "path version", from the table of THIRD_PARTY_LICENSES.
func licensesIn(notices []byte) map[string]string {
	table, _, _ := bytes.Cut(notices, []byte("\n===="))
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S.*)\n  (\S.*)\n  https://`).FindAllStringSubmatch(string(table), -1) {
		found[m[1]] = m[2]
	}
	return found
}

// expression returns the licences of a binary, gorun's own and its modules', as an SPDX expression.
func expression(notices []byte) string {
	names := []string{"MIT"}
	for _, license := range licensesIn(notices) {
		names = append(names, strings.Split(license, " AND ")...)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " AND ")
}

// A checked file has a SHA-256, in hexadecimal digits.
type checked struct{ name, sum string }

// sums returns the checksum of each file that is there, but for that of checksums and its signature.
func (r *release) sums() ([]checked, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var all []checked
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "SHA256SUMS") || !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, checked{e.Name(), fmt.Sprintf("%x", sha256.Sum256(data))})
	}
	return all, nil
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

// These are the parts of SPDX 2.3 that the bill uses.
type document struct {
	Version   string     `json:"spdxVersion"`
	License   string     `json:"dataLicense"`
	ID        string     `json:"SPDXID"`
	Name      string     `json:"name"`
	Namespace string     `json:"documentNamespace"`
	Creation  creation   `json:"creationInfo"`
	Parts     []part     `json:"packages"`
	Relations []relation `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type part struct {
	ID         string      `json:"SPDXID"`
	Name       string      `json:"name"`
	Version    string      `json:"versionInfo"`
	Purpose    string      `json:"primaryPackagePurpose"`
	Supplier   string      `json:"supplier"`
	Location   string      `json:"downloadLocation"`
	Analyzed   bool        `json:"filesAnalyzed"`
	Concluded  string      `json:"licenseConcluded"`
	Declared   string      `json:"licenseDeclared"`
	Copyright  string      `json:"copyrightText"`
	Comment    string      `json:"comment,omitempty"`
	Checksums  []checksum  `json:"checksums,omitempty"`
	References []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

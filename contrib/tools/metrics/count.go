package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// count is everything that the table shows.
type count struct {
	goLines, goCode, goTests   int
	pythonLines, pythonTests   int
	cLines                     int
	wide, wideTests            int
	words                      int
	functions                  []function
	types                      map[string]*bigType
	durations, limits          int                 // named ones, and those in liveness.Timing
	besideLiveness             []string            // named ones in packages that use that
	names                      map[string][]string // exported type names, with their packages
	arrows                     map[string]arrows
	packages, documented       int
	exported, exportedWithText int
}

type function struct {
	name  string
	lines int
}

type bigType struct {
	fields, methods       int
	allFields, allMethods int // with what embedded types have
	files                 map[string]bool
}

// lines counts the lines of all files, including files for other systems.
func (c *count) lines() error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "build", "bin", "__pycache__"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		kind := filepath.Ext(path)
		if !slices.Contains([]string{".go", ".py", ".c", ".h", ".md"}, kind) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c.addLines(path, kind, text)
		return nil
	})
}

func (c *count) addLines(path, kind string, text []byte) {
	lines, wide := 0, 0
	for line := range strings.Lines(string(text)) {
		lines++
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > maxLine {
			wide++
		}
	}
	isTest := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/tests/") || strings.HasPrefix(filepath.Base(path), "test_")
	isTest = isTest || strings.HasPrefix(path, "contrib/e2e/")
	switch {
	case kind == ".md":
		if path == "ARCHITECTURE.md" {
			c.words = len(strings.Fields(string(text)))
		}
	case kind == ".go" && isTest:
		c.goTests, c.wideTests = c.goTests+lines, c.wideTests+wide
	case kind == ".go":
		c.goLines, c.goCode, c.wide = c.goLines+lines, c.goCode+codeLines(text), c.wide+wide
	case kind == ".py" && isTest:
		c.pythonTests += lines
	case kind == ".py":
		c.pythonLines += lines
	default:
		c.cLines += lines
	}
}

// codeLines counts the lines with a token on them; a string of several lines counts as one.
func codeLines(text []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok != token.SEMICOLON || literal != "\n" {
			lines[file.Line(pos)] = true
		}
	}
}

// add counts what is in a package.
func (c *count) add(s *source) {
	if strings.HasPrefix(s.path, "contrib/e2e") {
		return // tests, and code that only serves tests
	}
	c.packages++
	if slices.ContainsFunc(s.files, func(f *ast.File) bool { return f.Doc != nil }) {
		c.documented++
	}
	for _, f := range s.files {
		for _, d := range f.Decls {
			c.addDecl(s, d)
		}
		ast.Inspect(f, func(n ast.Node) bool { c.addDurations(s, n); return true })
	}
	for _, name := range s.types.Scope().Names() {
		object, isType := s.types.Scope().Lookup(name).(*types.TypeName)
		if isType && slices.Contains(bigTypes, s.path+"."+name) {
			t := c.bigType(s.path + "." + name)
			t.allFields, t.allMethods = inAll(object.Type(), strings.TrimSuffix(s.types.Path(), "/"+s.path))
		}
		if !isType || !object.Exported() || object.IsAlias() || types.IsInterface(object.Type()) {
			continue
		}
		if s.types.Name() != "main" && !slices.Contains([]string{"Options", "Config", "Error"}, name) {
			c.names[name] = append(c.names[name], s.path)
		}
	}
	if slices.Contains(folders, s.path) {
		c.arrows[s.path] = fileArrows(s)
	}
}

func (c *count) addDecl(s *source, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		lines := s.fset.Position(d.End()).Line - s.fset.Position(d.Pos()).Line + 1
		name := s.path + "." + d.Name.Name
		if d.Recv != nil {
			receiver := receiverOf(d)
			name = s.path + "." + receiver + "." + d.Name.Name
			t := c.bigType(s.path + "." + receiver)
			t.methods++
			t.files[s.file(d.Pos())] = true
		}
		c.functions = append(c.functions, function{name, lines})
		c.documentedName(d.Name, d.Doc != nil)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok {
				c.documentedName(spec.Name, d.Doc != nil || spec.Doc != nil || spec.Comment != nil)
				if structure, ok := spec.Type.(*ast.StructType); ok {
					c.bigType(s.path + "." + spec.Name.Name).fields = fields(structure)
					if s.path == liveness && spec.Name.Name == "Timing" {
						c.limits = fields(structure)
					}
				}
			}
		}
	}
}

// documentedName counts an exported function, method or type.
func (c *count) documentedName(name *ast.Ident, documented bool) {
	if name.IsExported() {
		c.exported++
		if documented {
			c.exportedWithText++
		}
	}
}

func (c *count) bigType(name string) *bigType {
	if c.types[name] == nil {
		c.types[name] = &bigType{files: map[string]bool{}}
	}
	return c.types[name]
}

// inAll returns how many fields and methods a type has itself, and from the types of this module that it embeds.
func inAll(t types.Type, module string) (fields, methods int) {
	methods = types.NewMethodSet(types.NewPointer(t)).Len()
	if s, ok := t.Underlying().(*types.Struct); ok {
		fields = fieldsInAll(s, module)
	}
	return fields, methods
}

func fieldsInAll(s *types.Struct, module string) (n int) {
	for f := range s.Fields() {
		t := f.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		inner, isStruct := t.Underlying().(*types.Struct)
		named, isNamed := t.(*types.Named)
		if f.Embedded() && isStruct && isNamed && strings.HasPrefix(named.Obj().Pkg().Path(), module+"/") {
			n += fieldsInAll(inner, module)
		} else {
			n++
		}
	}
	return n
}

func fields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// receiverOf returns the name of the type that a method belongs to.
func receiverOf(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		case *ast.IndexListExpr:
			t = inner.X
		case *ast.Ident:
			return inner.Name
		default:
			return "?"
		}
	}
}

// addDurations counts named durations with a fixed value.
func (c *count) addDurations(s *source, n ast.Node) {
	spec, ok := n.(*ast.ValueSpec)
	if !ok {
		return
	}
	for i, name := range spec.Names {
		object := s.info.Defs[name]
		if object == nil || object.Type().String() != "time.Duration" {
			continue
		}
		if _, isConst := object.(*types.Const); !isConst && (i >= len(spec.Values) || s.info.Types[spec.Values[i]].Value == nil) {
			continue
		}
		c.durations++
		if s.path == liveness || s.path == reaching || usesLiveness(s) {
			c.besideLiveness = append(c.besideLiveness, s.path+"."+name.Name)
		}
	}
}

// usesLiveness reports whether a package imports the one that decides whether a host is there.
func usesLiveness(s *source) bool {
	return slices.ContainsFunc(s.types.Imports(), func(p *types.Package) bool { return strings.HasSuffix(p.Path(), "/"+liveness) })
}

// print writes the table.
func (c *count) print(out io.Writer, longest int, up bool) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-44s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("lines of Go, without tests", "%d, of code %d", c.goLines, c.goCode)
	row("lines of Go tests", "%d", c.goTests)
	row("lines of Python, without tests", "%d", c.pythonLines)
	row("lines of Python tests", "%d", c.pythonTests)
	row("lines of C", "%d", c.cLines)
	row(fmt.Sprintf("lines over %d columns, Go", maxLine), "%d, in tests %d", c.wide, c.wideTests)
	row("words of ARCHITECTURE.md", "%d", c.words)
	row("packages", "%d, with a package doc %d", c.packages, c.documented)
	row("exported functions, methods, types", "%d, documented %d", c.exported, c.exportedWithText)
	slices.SortStableFunc(c.functions, func(a, b function) int { return cmp.Compare(a.lines, b.lines) })
	total := 0
	for _, f := range c.functions {
		total += f.lines
	}
	n := len(c.functions)
	row("functions", "%d: mean %.1f, p90 %d, p99 %d, max %d lines", n, float64(total)/float64(n),
		c.functions[n*90/100].lines, c.functions[n*99/100].lines, c.functions[n-1].lines)
	for i := range min(longest, n) {
		row("  "+c.functions[n-1-i].name, "%d", c.functions[n-1-i].lines)
	}
	for _, name := range bigTypes {
		if t := c.types[name]; t != nil {
			row("type "+name, "%d fields, %d methods in %d files; in all %d, %d",
				t.fields, t.methods, len(t.files), t.allFields, t.allMethods)
		}
	}
	for _, folder := range folders {
		a := c.arrows[folder]
		row("arrows between files of "+folder, "%d, in circles %d, up %d", a.all, a.circular, len(a.up))
		for _, arrow := range a.up {
			if up {
				row("", "%s", arrow)
			}
		}
	}
	row("named durations", "%d, limits in liveness.Timing %d", c.durations, c.limits)
	slices.Sort(c.besideLiveness)
	row("named durations beside it", "%d: %s", len(c.besideLiveness), strings.Join(c.besideLiveness, ", "))
	var several []string
	for name, packages := range c.names {
		if len(packages) > 1 {
			several = append(several, fmt.Sprintf("%s %d", name, len(packages)))
		}
	}
	slices.Sort(several)
	row("exported type names in several packages", "%d: %s", len(several), strings.Join(several, ", "))
}

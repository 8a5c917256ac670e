package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is one package of the module, with its types resolved.
type source struct {
	path  string // in the module, as in "worker/session"
	dir   string
	fset  *token.FileSet
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// file returns the base name of the file in which something is.
func (s *source) file(pos token.Pos) string { return filepath.Base(s.fset.Position(pos).Filename) }

// listed is go list's description of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool // only imported by a package that matches
	Module                  *struct {
		Path string
		Main bool
	}
}

// load reads the packages of this module that match patterns, for this system. Export data of the packages that they
// import comes from the compiler's cache.
func load(patterns ...string) ([]*source, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Module,DepOnly"}
	cmd := exec.Command("go", append(args, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	exports := map[string]string{}
	var own []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly && l.Module != nil && l.Module.Main && len(l.GoFiles) > 0 {
			own = append(own, l)
		}
	}
	fset := token.NewFileSet()
	resolve := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*source
	for _, l := range own {
		s, err := check(fset, l, resolve)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", l.ImportPath, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// check parses a package and resolves its names.
func check(fset *token.FileSet, l listed, resolve types.Importer) (*source, error) {
	s := &source{
		path: strings.TrimPrefix(l.ImportPath, l.Module.Path+"/"), dir: l.Dir, fset: fset,
		info: &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
	}
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
	}
	config := types.Config{Importer: resolve}
	var err error
	s.types, err = config.Check(l.ImportPath, fset, s.files, s.info)
	return s, err
}

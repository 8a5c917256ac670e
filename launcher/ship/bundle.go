package ship

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"gorun/launcher/spread"
	"gorun/rendezvous/wire"
)

// Bundle is a tree that hosts get from the launcher and from each other.
type Bundle struct {
	spread.Spread
	// Kept opens what a file held when the tree was sent to this machine, where ranks may have changed the tree; nil if it was not sent.
	Kept func(wire.TreeFile) (*os.File, error)
	tree *wire.Tree
	name func() string
}

// New returns a Bundle of a tree that lies on this machine. The launcher sends it to two hosts at most, unless these cannot
// send it to others.
func New(tree *wire.Tree) *Bundle {
	return &Bundle{Spread: spread.Spread{Seeds: 2}, tree: tree, name: sync.OnceValue(tree.Name)}
}

// Tree returns the tree.
func (b *Bundle) Tree() *wire.Tree { return b.tree }

// Name returns the name of the tree.
func (b *Bundle) Name() string { return b.name() }

// Open returns what files of the tree hold, one after the other.
func (b *Bundle) Open(files []int) io.ReadCloser {
	return &reader{tree: b.tree, kept: b.Kept, files: files}
}

// reader reads files one after the other, as long as each was when the tree was made.
type reader struct {
	tree  *wire.Tree
	kept  func(wire.TreeFile) (*os.File, error)
	files []int
	file  *os.File
	left  int64 // of file
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	for r.left == 0 {
		r.Close()
		if len(r.files) == 0 {
			return 0, io.EOF
		}
		f := r.tree.Files[r.files[0]]
		err := os.ErrNotExist
		if r.kept != nil {
			r.file, err = r.kept(f)
		}
		if err != nil { // then as it is in the tree
			r.file, err = os.Open(filepath.Join(r.tree.Root, f.Path))
		}
		if err != nil {
			return 0, err
		}
		r.files, r.left = r.files[1:], f.Size
	}
	n, err := r.file.Read(b[:min(int64(len(b)), r.left)])
	r.left -= int64(n)
	if err == io.EOF {
		err = fmt.Errorf("%s has become shorter since the job was started", r.file.Name())
	}
	return n, err
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.file == nil {
		return nil
	}
	file := r.file
	r.file = nil
	return file.Close()
}

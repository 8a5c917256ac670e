// Package ibverbs is a verbs.Provider by libibverbs, which it loads at run time and calls without cgo. It exists in
// programs that are built with the tag rdma; they are linked dynamically, to the C library alone.
//
// Most functions of the library are ordinary symbols. Those that post and poll are inline in verbs.h and call what
// pointers in ibv_context name; so the package knows where these are, and how the structures of the library look
// (layout.go). That is an interface between the library and all programs compiled against it, which cannot change. A
// test compares it with Debian's headers.
//
// Everything that the library reads or writes is outside of Go's heap: each pair has two rings, a page for attributes, work
// requests and completions, and a page for events.
package ibverbs

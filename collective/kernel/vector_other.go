//go:build (!amd64 && !arm64) || purego

package kernel

const vectorStep = 1 << 30 // there are no loops

var levelNames = [...]string{"generic"}

func detect() level { return generic }

func vector(Type, Op, *args) bool { return false }

package kernel_test

import (
	"testing"

	"gorun/collective/kernel"
)

// TestMovedTypes: types without arithmetic have a size, count as numbers, and have no reduction.
func TestMovedTypes(t *testing.T) {
	for typ := kernel.Complex128 + 1; typ.Valid(); typ++ {
		if want := map[bool]int{true: 4, false: 1}[typ == kernel.Complex32]; typ.Size() != want || !typ.Float() {
			t.Errorf("%s: %d bytes, float %v", typ, typ.Size(), typ.Float())
		}
		for op := kernel.Average; op.Valid(); op++ {
			if (kernel.Plan{Type: typ, Op: op, Pre: 1, Post: 1}).Check() == nil {
				t.Errorf("%s of %s is defined", op, typ)
			}
		}
	}
}

package collective

import "unsafe"

// resize returns s with n elements, with the old ones where there is room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// permute returns s with the elements that were at the given places.
func permute[T any](s []T, was []int) []T {
	out := make([]T, len(was))
	for i, at := range was {
		out[i] = s[at]
	}
	return out
}

// same reports whether two slices of one length are the same memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || unsafe.SliceData(a) == unsafe.SliceData(b))
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

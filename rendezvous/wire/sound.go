package wire

import "errors"

// The decoder allocates as many elements as an array announces, and follows nested arrays to any depth. So every
// message is scanned first: all announced elements must be present.

const maxDepth = 32 // of arrays and maps within each other

var (
	errCut  = errors.New("message is cut short")
	errDeep = errors.New("message is nested too deep")
	errCode = errors.New("message has a code that msgpack does not know")
)

// forms are the codes of msgpack from 0xc4 on that are followed by a length, or by a fixed number of bytes.
var forms = [...]struct {
	length int // bytes of the length
	fixed  int // bytes besides those of the length, and those it counts
	values int // for each of what it counts, 0 if that is bytes
}{
	{1, 0, 0}, {2, 0, 0}, {4, 0, 0}, // binary
	{1, 1, 0}, {2, 1, 0}, {4, 1, 0}, // extension: its type
	{0, 4, 0}, {0, 8, 0}, // float
	{0, 1, 0}, {0, 2, 0}, {0, 4, 0}, {0, 8, 0}, // unsigned
	{0, 1, 0}, {0, 2, 0}, {0, 4, 0}, {0, 8, 0}, // signed
	{0, 2, 0}, {0, 3, 0}, {0, 5, 0}, {0, 9, 0}, {0, 17, 0}, // extension of a fixed length
	{1, 0, 0}, {2, 0, 0}, {4, 0, 0}, // string
	{2, 0, 1}, {4, 0, 1}, // array
	{2, 0, 2}, {4, 0, 2}, // map
}

// sound checks one value and returns what follows it.
func sound(b []byte, depth int) ([]byte, error) {
	if len(b) == 0 {
		return nil, errCut
	}
	if depth > maxDepth {
		return nil, errDeep
	}
	bytes, values := 0, 0
	c := b[0]
	b = b[1:]
	switch {
	case c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // a small number, nil, false, true
	case c < 0x90:
		values = 2 * int(c&0xf)
	case c < 0xa0:
		values = int(c & 0xf)
	case c < 0xc0:
		bytes = int(c & 0x1f)
	case c == 0xc1:
		return nil, errCode
	default:
		form := forms[c-0xc4]
		if len(b) < form.length {
			return nil, errCut
		}
		n := 0
		for _, digit := range b[:form.length] {
			n = n<<8 | int(digit)
		}
		b = b[form.length:]
		bytes, values = form.fixed, n*form.values
		if form.values == 0 {
			bytes += n
		}
	}
	if bytes > len(b) || values > len(b) {
		return nil, errCut
	}
	b = b[bytes:]
	for ; values > 0; values-- {
		var err error
		if b, err = sound(b, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

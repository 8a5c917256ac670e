package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Count renders a number of things with the right plural.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Ranges writes numbers in order, with ranges: "0-2,5".
func Ranges(numbers []int) string {
	numbers = slices.Sorted(slices.Values(numbers))
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] <= numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if numbers[last] > numbers[i] {
			part += "-" + strconv.Itoa(numbers[last])
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ",")
}

package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// placeholders are the names that Fill replaces.
var placeholders = []string{"rank", "local_rank", "gpu"}

// Fill replaces {rank}, {local_rank} and {gpu} in the words of a command; {{ stands for {.
func (r Rank) Fill(words []string, gpu string) []string {
	fill := strings.NewReplacer("{{", "{", "{rank}", strconv.Itoa(r.Rank), "{local_rank}", strconv.Itoa(r.LocalRank), "{gpu}", gpu)
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = fill.Replace(word)
	}
	return out
}

// CheckTemplate returns an error for a placeholder that Fill does not know.
func CheckTemplate(words []string) error {
	for _, word := range words {
		for rest := word; ; {
			_, after, found := strings.Cut(rest, "{")
			if !found {
				break
			}
			if strings.HasPrefix(after, "{") {
				rest = after[1:]
				continue
			}
			name, tail, closed := strings.Cut(after, "}")
			known := false
			for _, p := range placeholders {
				known = known || p == name
			}
			if !closed || !known {
				return fmt.Errorf("%q: {%s is none of {rank}, {local_rank}, {gpu}; write {{ for a brace", word, name)
			}
			rest = tail
		}
	}
	return nil
}

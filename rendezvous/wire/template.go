package wire

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Fill replaces {rank}, {local_rank} and {gpu} in the words of a command; {{ stands for {.
func (r Rank) Fill(words []string, gpu string) []string {
	fill := strings.NewReplacer("{{", "{", "{rank}", strconv.Itoa(r.Rank), "{local_rank}", strconv.Itoa(r.LocalRank), "{gpu}", gpu)
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = fill.Replace(word)
	}
	return out
}

// CheckTemplate returns an error for a placeholder in a text that is none of those known.
func CheckTemplate(text string, known ...string) error {
	for _, found := range regexp.MustCompile(`\{\{|\{[^}]*\}?`).FindAllString(text, -1) {
		if found != "{{" && !slices.Contains(known, found) {
			return fmt.Errorf("%q: %s is none of %s; write {{ for a brace", text, found, strings.Join(known, ", "))
		}
	}
	return nil
}

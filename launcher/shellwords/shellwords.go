// Package shellwords splits a command line that users write in one argument or variable into words.
package shellwords

import (
	"errors"
	"fmt"
	"strings"
)

// Split splits at blanks; quotes and backslashes mean what they mean to a shell.
func Split(s string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		quote byte
		open  bool // a word has begun, if only with an empty pair of quotes
	)
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == 0:
			return nil, errors.New("holds a zero byte")
		case quote == 0 && (b == ' ' || b == '\t' || b == '\n'):
			if open {
				words = append(words, word.String())
				word.Reset()
			}
			open = false
		case quote == 0 && (b == '\'' || b == '"'):
			quote, open = b, true
		case b == quote && quote != 0:
			quote = 0
		case b == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word.WriteByte(s[i])
			open = true
		default:
			word.WriteByte(b)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%c without an end", quote)
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

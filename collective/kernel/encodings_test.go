package kernel_test

import (
	"debug/elf"
	"encoding/binary"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestEncodings compares each instruction that neon_arm64.h encodes with what another assembler makes of its comment.
func TestEncodings(t *testing.T) {
	assembler, err := exec.LookPath("aarch64-linux-gnu-as")
	if err != nil {
		t.Skip("no other assembler for arm64: apt-get install binutils-aarch64-linux-gnu")
	}
	header, err := os.ReadFile("neon_arm64.h")
	must.Do(t, err)
	var source, lines []string
	var words []uint32
	for line := range strings.Lines(string(header)) {
		if !strings.Contains(line, "WORD") {
			continue
		}
		parts := regexp.MustCompile(`^#define \w+\((.*)\) WORD \$(\(.*\)) // (.*)\n$`).FindStringSubmatch(line)
		if parts == nil {
			t.Fatalf("no definition of an instruction: %s", line)
		}
		parameters, expression, text := parts[1], parts[2], parts[3]
		for i, parameter := range strings.Split(parameters, ", ") {
			register := strconv.Itoa([]int{21, 10, 7}[i])
			expression = strings.ReplaceAll(expression, "("+parameter+")", "("+register+")")
			text = regexp.MustCompile(`\b`+parameter+`\.`).ReplaceAllString(text, "v"+register+".")
			text = regexp.MustCompile(`\bs`+parameter+`\b`).ReplaceAllString(text, "s"+register)
		}
		value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expression)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		word, err := strconv.ParseUint(value.Value.ExactString(), 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		words = append(words, uint32(word))
		source, lines = append(source, text+"\n"), append(lines, line)
	}
	if len(words) == 0 {
		t.Fatal("no instructions")
	}
	object := filepath.Join(t.TempDir(), "text.o")
	as := exec.Command(assembler, "-march=armv8-a", "-o", object, "-")
	as.Stdin = strings.NewReader(strings.Join(source, ""))
	if out, err := as.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := elf.Open(object)
	must.Do(t, err)
	defer file.Close()
	code, err := file.Section(".text").Data()
	if err != nil || len(code) != 4*len(words) {
		t.Fatalf("%d bytes of code for %d instructions: %v", len(code), len(words), err)
	}
	for i, word := range words {
		if want := binary.LittleEndian.Uint32(code[4*i:]); word != want {
			t.Errorf("%08x should be %08x: %s", word, want, lines[i])
		}
	}
}

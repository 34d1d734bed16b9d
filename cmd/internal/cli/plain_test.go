package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func TestErrorsOfGoAreSaidInWords(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, none := os.Open(filepath.Join(dir, "none"))
	_, within := os.Stat(filepath.Join(file, "x"))
	_, folder := os.ReadFile(dir)
	_, word := strconv.Atoi("abc")
	_, large := strconv.Atoi("99999999999999999999")
	for want, err := range map[string]error{
		"plan: there is no " + dir + "/none; give one":                         fmt.Errorf("plan: %w; give one", none),
		"there is no " + file + "/x: a part of that path is a file, no folder": within,
		dir + " is a folder": folder,
		`two: "abc" is no number` + "\n" + `"99999999999999999999" is beyond what a number may be`: fmt.Errorf("two: %w",
			errors.Join(word, large)),
		"init: x: there is no such file": fmt.Errorf("init: x: %w", syscall.ENOENT),
		"as it is":                       errors.New("as it is"),
	} {
		if got := inWords(BadInput(err)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package record

import (
	"cmp"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// commit returns the commit that this program was built from. A program that go run or go test has just built does not
// know its commit. Then git is asked about the current folder, if that is a checkout of this program's module.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Unknown
	}
	said := map[string]string{}
	for _, s := range info.Settings {
		said[s.Key] = s.Value
	}
	revision, changed := said["vcs.revision"], said["vcs.modified"] == "true"
	if revision == "" && justBuilt(os.Args[0]) {
		revision, changed = checkedOut(info.Main.Path)
	}
	switch {
	case revision == "":
		return Unknown
	case changed:
		return revision + "+"
	}
	return revision
}

// justBuilt reports whether a program's path is in a build folder of go run or go test.
func justBuilt(program string) bool { return strings.Contains(program, "/go-build") }

// checkedOut returns the commit that is checked out in the current folder, and whether files were changed. It
// returns "" for another module, and outside a checkout.
func checkedOut(module string) (revision string, changed bool) {
	git := func(args ...string) (string, bool) {
		out, err := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	top, ok := git("rev-parse", "--show-toplevel")
	if !ok {
		return "", false
	}
	text, err := os.ReadFile(filepath.Join(top, "go.mod"))
	if err != nil || !slices.Contains(strings.Split(string(text), "\n"), "module "+module) {
		return "", false
	}
	if revision, ok = git("rev-parse", "HEAD"); !ok {
		return "", false
	}
	status, ok := git("status", "--porcelain", "--untracked-files=no")
	return revision, !ok || status != ""
}

// plain matches a word that a shell needs no quotes for.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)

// commandLine returns arguments as a command line for a shell. A program built by go run is named by its package.
func commandLine(args []string) string {
	words := []string{args[0]}
	if info, ok := debug.ReadBuildInfo(); ok && justBuilt(args[0]) {
		inside := strings.TrimPrefix(info.Path, info.Main.Path+"/")
		words = []string{"go", "run", "./" + cmp.Or(inside, path.Base(args[0]))}
	}
	for _, word := range args[1:] {
		if !plain.MatchString(word) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

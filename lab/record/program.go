package record

import (
	"cmp"
	"os/exec"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
)

// commit is what this program was built from. Of one that go run has just built, and that says nothing, it is what
// git says of the current folder.
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
	if revision == "" {
		out, err := exec.Command("git", "rev-parse", "HEAD").Output()
		if err != nil {
			return Unknown
		}
		status, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
		revision, changed = strings.TrimSpace(string(out)), err != nil || len(status) > 0
	}
	if changed {
		revision += "+"
	}
	return revision
}

// plain is a word that a shell takes as it is.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)

// commandLine is arguments as a shell takes them. A program that go run has built in a folder of its own is named by
// its package.
func commandLine(args []string) string {
	words := []string{args[0]}
	if info, ok := debug.ReadBuildInfo(); ok && strings.Contains(args[0], "/go-build") {
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

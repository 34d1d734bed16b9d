package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The set-up asks no questions. It installs what is missing as root, or with a sudo that needs no password;
// otherwise it prints the command to run. If nothing is missing it prints nothing.
func TestSetUp(t *testing.T) {
	const (
		update  = "apt-get update\n"
		install = "apt-get install -y --no-install-recommends libgloo-dev g++\n"
	)
	for name, c := range map[string]struct {
		user             int
		missing          bool
		sudo, apt        string // shell scripts in place of these programs
		code             int
		installs, prints string
	}{
		"nothing missing": {user: 1000, sudo: "exit 1", apt: "exit 1"},
		"root": {missing: true, sudo: "exit 1", installs: update + install,
			prints: "setup: installing libgloo-dev g++\nsetup: installed\n"},
		"sudo without password": {user: 1000, missing: true, sudo: `shift; "$@"`, installs: update + install,
			prints: "setup: installing libgloo-dev g++\nsetup: installed\n"},
		"neither": {user: 1000, missing: true, sudo: "exit 1", code: 1,
			prints: "  sudo apt-get update && sudo " + install},
		"no network": {missing: true, apt: "echo cannot reach; exit 100", code: 1, installs: update,
			prints: "setup: installing libgloo-dev g++\ncannot reach\nsetup: apt-get failed, see above\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log := filepath.Join(dir, "log")
			present := "echo 'install ok installed'"
			if c.missing {
				present = `case "$3" in libgloo-dev|g++) exit 1;; esac; ` + present
			}
			for tool, does := range map[string]string{
				"dpkg-query": present,
				"id":         fmt.Sprint("echo ", c.user),
				"sudo":       c.sudo,
				"apt-get":    fmt.Sprintf("echo \"apt-get $*\" >>%s\n%s", log, c.apt),
			} {
				if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\n"+does+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			setup := exec.CommandContext(t.Context(), "bash", "../../scripts/setup.sh")
			setup.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+dir)
			out, err := setup.CombinedOutput()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.HasSuffix(string(out), c.prints) || (c.prints == "") != (len(out) == 0) {
				t.Errorf("it ends with %d and prints\n%s\nwant %d and\n%s", code, out, c.code, c.prints)
			}
			if did, _ := os.ReadFile(log); string(did) != c.installs {
				t.Errorf("it did\n%s\nwant\n%s", did, c.installs)
			}
		})
	}
}

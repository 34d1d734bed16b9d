// Package processor says what this machine's processors are, as far as times and bits depend on them.
//
// In: /proc/cpuinfo. Out: words to print and to compare. Where the system does not say, machines look alike.
package processor

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Name is what they are called; empty where the system does not say.
func Name() string { return first()["model name"] }

// Identity is the processors' name and a digest of their features. Clouds shorten names, and libraries choose kernels
// by features.
func Identity() string {
	said := first()
	flags := strings.Fields(said["flags"] + said["Features"])
	slices.Sort(flags)
	sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
	return fmt.Sprintf("%s %s, family %s model %s stepping %s, flags %x", runtime.GOARCH, said["model name"],
		said["cpu family"], said["model"], said["stepping"], sum[:4])
}

// first is what the system says of the first one.
func first() map[string]string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	about, _, _ := strings.Cut(string(text), "\n\n")
	said := map[string]string{}
	for line := range strings.Lines(about) {
		key, value, _ := strings.Cut(line, ":")
		said[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return said
}

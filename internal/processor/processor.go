// Package processor identifies this machine's processors, on which computing times and the bits of results depend.
//
// Input: /proc/cpuinfo. Output: texts to print and to compare. On systems without this file, all machines have the same
// text.
package processor

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Name returns the processors' name; empty if unknown.
func Name() string { return first()["model name"] }

// Identity returns the processors' name and a digest of their features. The name is not enough, because clouds shorten
// names and libraries choose kernels by features.
func Identity() string {
	said := first()
	flags := strings.Fields(said["flags"] + said["Features"])
	slices.Sort(flags)
	sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
	return fmt.Sprintf("%s %s, family %s model %s stepping %s, flags %x", runtime.GOARCH, said["model name"],
		said["cpu family"], said["model"], said["stepping"], sum[:4])
}

// first returns the system's description of the first processor.
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

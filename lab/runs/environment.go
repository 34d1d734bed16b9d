package runs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// environment is what bits depend on beside code.
type environment struct {
	CPU      string `json:"cpu"`
	BLAS     string `json:"blas"` // the library and the kernels that it has chosen
	CoreType string `json:"openblas_coretype"`
	Torch    string `json:"libtorch"`
}

// environmentOf asks a side what it finds here.
func environmentOf(ctx context.Context, s *side) (environment, error) {
	e := environment{CPU: processor(), CoreType: os.Getenv("OPENBLAS_CORETYPE")}
	out, err := s.millrace(ctx, "doctor", "--json")
	if err != nil {
		return e, err
	}
	var findings []struct{ What, Value string }
	if err := json.Unmarshal(out, &findings); err != nil {
		return e, fmt.Errorf("doctor --json: %w", err)
	}
	for _, f := range findings {
		switch f.What {
		case "BLAS":
			e.BLAS = f.Value
		case "libtorch":
			e.Torch = f.Value
		}
	}
	if e.BLAS == "" || e.Torch == "" {
		return e, fmt.Errorf("doctor --json names no BLAS or no libtorch: %s", out)
	}
	return e, nil
}

// processor is this machine's: its name, which clouds shorten, and a digest of what it can do, by which
// libraries choose their kernels.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	first, _, _ := strings.Cut(string(text), "\n\n")
	said := map[string]string{}
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		said[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	flags := strings.Fields(said["flags"] + said["Features"])
	slices.Sort(flags)
	sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
	return fmt.Sprintf("%s %s, family %s model %s stepping %s, flags %x", runtime.GOARCH, said["model name"],
		said["cpu family"], said["model"], said["stepping"], sum[:4])
}

// unlike says in which way another environment differs, "" if it does not.
func (e environment) unlike(other environment) string {
	for _, x := range []struct{ what, here, there string }{
		{"processor", e.CPU, other.CPU}, {"BLAS", e.BLAS, other.BLAS},
		{"OPENBLAS_CORETYPE", e.CoreType, other.CoreType},
		{"libtorch", e.Torch, other.Torch},
	} {
		if x.here != x.there {
			return fmt.Sprintf("the %s here is %q, there %q", x.what, x.here, x.there)
		}
	}
	return ""
}

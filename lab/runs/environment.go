package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/millrace-ml/millrace/internal/processor"
)

// environment holds everything besides code on which the bits of a result depend.
type environment struct {
	CPU      string `json:"cpu"`
	BLAS     string `json:"blas"` // the library and its chosen kernels
	CoreType string `json:"openblas_coretype"`
	Torch    string `json:"libtorch"`
}

// environmentOf returns the environment that a side's program reports.
func environmentOf(ctx context.Context, s *side) (environment, error) {
	e := environment{CPU: processor.Identity(), CoreType: os.Getenv("OPENBLAS_CORETYPE")}
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

// unlike says how another environment differs; "" if there is no difference.
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

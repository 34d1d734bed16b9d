package stage

import (
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
)

// doubles returns an engine that computes in float64.
func doubles(t *testing.T) engine.Engine {
	t.Helper()
	return ref.New()
}

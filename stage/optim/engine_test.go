package optim

import (
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
)

func testEngine(t *testing.T) engine.Engine {
	t.Helper()
	return ref.New()
}

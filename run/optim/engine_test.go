package optim

import (
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
)

func testEngine(t *testing.T) engine.Engine {
	e, err := torch.Open()
	if err != nil {
		t.Skip("libtorch is not installed: ", err)
	}
	return e
}

package pipe_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestItIsACarrier(t *testing.T) { wiretest.Conforms(t, pipe.New) }

func TestItNeedsAWorker(t *testing.T) {
	if _, err := pipe.New(0); err == nil {
		t.Error("carriers of no workers were made")
	}
}

package wire_test

import (
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/shape"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

func TestInProcessIsACarrier(t *testing.T) { wiretest.Conforms(t, wire.InProcess) }

func TestShapedIsACarrier(t *testing.T) {
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) {
		all, err := wire.InProcess(n)
		if err != nil {
			return nil, err
		}
		return shape.New(all, func(from, to int) shape.Link {
			return shape.Link{Latency: time.Duration(50*(1+from)) * time.Microsecond, BytesPerSecond: 1e9}
		})
	})
}

package links_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/measure/links"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/shape"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// between measures the link between two workers of this process.
func between(t *testing.T, ctx context.Context, all []wire.Carrier) (links.Link, error) {
	t.Helper()
	answered := make(chan error, 1)
	go func() { answered <- links.Answer(ctx, all[1], 0) }()
	l, err := links.Lead(ctx, all[0], 1)
	return l, errors.Join(err, <-answered)
}

func closed(t *testing.T, all []wire.Carrier) {
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestShapedLinksAreFound: the measured latency and bandwidths are those of the shaped link, in each direction.
func TestShapedLinksAreFound(t *testing.T) {
	const latency, there, back = 5 * time.Millisecond, 20e6, 5e6
	carriers, err := pipe.New(2)
	if err != nil {
		t.Fatal(err)
	}
	all, err := shape.New(carriers, func(from, _ int) shape.Link {
		if from == 0 {
			return shape.Link{Latency: latency, BytesPerSecond: there}
		}
		return shape.Link{Latency: latency, BytesPerSecond: back}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, all)
	l, err := between(t, t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return got > 0.8*want && got < 1.25*want }
	if !near(l.ThereBytesPerSecond, there) || !near(l.BackBytesPerSecond, back) || l.LatencyS < latency.Seconds() ||
		l.LatencyS > 3*latency.Seconds() {
		t.Errorf("%+v; it was shaped to %v, %g and %g bytes a second", l, latency, there, back)
	}
}

// TestEveryCarrierIsMeasured measures every carrier, including those that hand memory over to the receiver.
func TestEveryCarrierIsMeasured(t *testing.T) {
	for name, open := range map[string]func(int) ([]wire.Carrier, error){
		"in process": wire.InProcess, "pipe": pipe.New, "tcp": tcp.New} {
		all, err := open(2)
		if err != nil {
			t.Fatal(err)
		}
		l, err := between(t, t.Context(), all)
		if err != nil || !(l.LatencyS > 0 && l.ThereBytesPerSecond > 1e6 && l.BackBytesPerSecond > 1e6) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
		closed(t, all)
	}
}

// TestAMeasurementEnds: a measurement ends with its context, even if the other end does not answer.
func TestAMeasurementEnds(t *testing.T) {
	all, err := tcp.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, all)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	if _, err := links.Lead(ctx, all[0], 1); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

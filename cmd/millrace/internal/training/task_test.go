package training

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/run/process"
)

// The workers of a starved process (see hosts.Seat) are not watched for stragglers. All other workers are watched,
// whichever process they belong to.
func TestWhoIsWatched(t *testing.T) {
	k := &task{Seats: []hosts.Seat{{Starved: true}, {}, {Starved: true}}}
	for _, process := range []int{2, 1, 1, 0} {
		k.Workers = append(k.Workers, at(process))
	}
	profile := []float64{1, 2, 3, 4}
	if got := k.watched(profile); !slices.Equal(got, []float64{0, 2, 3, 0}) || profile[0] != 1 {
		t.Errorf("%v of %v", got, profile)
	}
	if got := k.watched(nil); len(got) > 0 { // other ranks than 0 have no profile
		t.Errorf("%v", got)
	}
}

func at(rank int) process.Location { return process.Location{Process: rank} }

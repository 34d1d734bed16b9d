package bench

import (
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
)

// Every published profile in artifacts exists and can be read.
func TestPublishedProfilesAreRead(t *testing.T) {
	folder := shared.Dir(t) + "/data/profiles"
	for name, profiles := range artifacts {
		for workload := range profiles {
			if p, err := published(folder, name+"-a", workload); err != nil || p == nil {
				t.Errorf("%s of %s: %v", workload, name, err)
			}
		}
	}
}

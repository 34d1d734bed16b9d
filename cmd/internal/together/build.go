package together

import (
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/launch/rendezvous"
)

// Build is what processes must have alike before they can say anything to each other.
func Build() []rendezvous.Fact {
	return []rendezvous.Fact{{Name: "version of millrace", Value: cli.Version(), Must: true}}
}

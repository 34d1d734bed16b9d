package together

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/processor"
	"github.com/millrace-ml/millrace/launch/rendezvous"
)

// Build is the facts of this build that processes compare when they meet. Some must be alike before they can say
// anything to each other; others, on which bits depend, may differ.
func Build() []rendezvous.Fact {
	facts := []rendezvous.Fact{
		{Name: "version of millrace", Value: cli.Version(), Must: true},
		{Name: "processor", Value: processor.Identity()},
	}
	e, err := torch.Open()
	if err != nil {
		return facts // who needs it says what is missing
	}
	i := e.Info()
	return append(facts,
		rendezvous.Fact{Name: "version of libtorch", Value: i.Torch, Must: true},
		rendezvous.Fact{Name: "native library", Value: digest(i.Native), Must: true},
		rendezvous.Fact{Name: "BLAS", Value: strings.TrimSpace(i.BLAS + " " + i.BLASCore)},
		rendezvous.Fact{Name: "CPU kernels", Value: i.Kernels},
	)
}

// digest tells a file from others of its name.
func digest(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return "build " + hex.EncodeToString(sum[:6])
}

// machine is the number that the kernel has given itself when it started, which all hosts have another of, also those
// of one name; empty where it does not say.
func machine() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

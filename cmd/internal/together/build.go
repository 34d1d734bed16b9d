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

// Build returns the facts about this build that processes compare when they meet. Facts with Must have to be equal, or
// else processes cannot exchange messages. Other facts may differ, but the bits of results depend on them.
func Build() []rendezvous.Fact {
	facts := []rendezvous.Fact{
		{Name: "version of millrace", Value: cli.Version(), Must: true},
		{Name: "processor", Value: processor.Identity()},
	}
	e, err := torch.Open()
	if err != nil {
		return facts // code that needs libtorch reports that it is missing
	}
	i := e.Info()
	return append(facts,
		rendezvous.Fact{Name: "version of libtorch", Value: i.Torch, Must: true},
		rendezvous.Fact{Name: "native library", Value: digest(i.Native), Must: true},
		rendezvous.Fact{Name: "BLAS", Value: strings.TrimSpace(i.BLAS + " " + i.BLASCore)},
		rendezvous.Fact{Name: "CPU kernels", Value: i.Kernels},
	)
}

// digest identifies the content of a file.
func digest(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return "build " + hex.EncodeToString(sum[:6])
}

// machine returns the kernel's boot id, which differs between hosts even if they have the same name. It returns "" if
// the kernel does not report it.
func machine() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

package bench

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/importer"
)

// publication is a published profile: its file, its format and its batch.
type publication struct {
	file, format string
	batch        int
}

// The published profiles by paper and workload. A file's name is <source>-<the profile's name>.txt. The files come from
// PipeDream's profiler/*/profiles/*/graph.txt (msr-fiddle/pipedream at 7db6a1c), DAPPLE's profiling_results/*.txt
// (AlibabaPAI/DAPPLE at fd75dcf), and profiles/bert_large of DAPPLE's upstream HPGO (LER0ever/HPGO at 409ec9f). BaPipe
// published no profiles and gets PipeDream's. For ResNet-50, DAPPLE gets PipeDream's too.
var artifacts = map[string]map[string]publication{
	"pipedream": {
		"vgg16": {"pipedream-vgg16.txt", "pipedream", 128}, "resnet50": {"pipedream-resnet50.txt", "pipedream", 128},
		"alexnet": {"pipedream-alexnet.txt", "pipedream", 256}, "gnmt-8": {"pipedream-gnmt.txt", "pipedream", 32},
		"gnmt-16": {"pipedream-gnmt_large.txt", "pipedream", 128},
	},
	"dapple": {
		"vgg19": {"dapple-vgg-19-pbs-32.txt", "dapple", 32}, "gnmt-16": {"dapple-gnmt-16-pbs-64.txt", "dapple", 64},
		"bert-48": {"dapple-bert-48-pbs-2.txt", "dapple", 2}, "bert-large": {"hpgo-bert_large.txt", "dapple", 6},
		"xlnet-36":     {"dapple-xlnet-36-pbs-1.txt", "dapple", 1},
		"amoebanet-36": {"dapple-amoeba-36-pbs-1.txt", "dapple", 1},
		"resnet50":     {"pipedream-resnet50.txt", "pipedream", 128},
	},
}

// published reads the profile that a paper's authors published for a workload. It returns nil if there is none. The
// first part of the preset's name is the paper.
func published(folder, preset, workload string) (*profile.Profile, error) {
	paper, _, _ := strings.Cut(preset, "-")
	if paper == "bapipe" {
		paper = "pipedream"
	}
	a, ok := artifacts[paper][workload]
	if !ok {
		return nil, nil
	}
	p, _, err := importer.Read(filepath.Join(folder, a.file), importer.Options{Format: a.format, Batch: a.batch})
	if err != nil {
		return nil, fmt.Errorf("profile of %s: %w", workload, err)
	}
	return p, nil
}

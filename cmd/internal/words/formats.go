package words

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Format is a file format of another program. Flags such as --to and --from select it by its name.
type Format struct {
	Name, Doc string
}

// These are formats of PyTorch: one for schedules, two for networks.
const (
	TorchCSV = "torch-csv"
	Torch    = "torch"
	PT2      = "pt2"
)

// cuts are formats that say where stages begin.
var cuts = []Format{
	{"split-points", "where PyTorch's stages begin, as JSON for split_spec"},
	{"megatron", "Megatron-LM's flags, with --pipeline-model-parallel-layout"},
	{"deepspeed", "the parts of DeepSpeed's PipelineModule, as JSON"},
}

// Exports returns the formats in which a plan can be written.
func Exports() []Format {
	return append([]Format{{TorchCSV, "PyTorch's schedule, compute-only CSV"}}, cuts...)
}

// Imports returns the formats that can be read.
func Imports() []Format {
	return append([]Format{
		{PT2, "a network from torch.export.save"},
		{Torch, "a network from python/millrace_export.py"},
		{TorchCSV, "PyTorch's pipeline schedule, compute-only CSV"},
		{"pipedream", "PipeDream's graph.txt, a profile: times in ms for one minibatch"},
		{"dapple", "DAPPLE's and HPGO's form of graph.txt"},
		{"piper", "Piper's JSON, a profile: times in s, or in ms with --time-unit ms"},
	}, cuts...)
}

// IsCuts reports whether a format says where stages begin.
func IsCuts(name string) bool {
	return slices.ContainsFunc(cuts, func(f Format) bool { return f.Name == name })
}

// IsImport reports whether a format can be read.
func IsImport(name string) bool {
	return slices.ContainsFunc(Imports(), func(f Format) bool { return f.Name == name })
}

// Names returns the names of formats.
func Names(formats []Format) (names []string) {
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// List returns one line for each format: the flag that selects it, and its description.
func List(flag string, formats []Format) string {
	widest := 0
	for _, f := range formats {
		widest = max(widest, len(f.Name))
	}
	var b strings.Builder
	for _, f := range formats {
		b.WriteString("  " + flag + " " + f.Name + strings.Repeat(" ", widest-len(f.Name)+3) + f.Doc + "\n")
	}
	return b.String()
}

func formats(of []Format) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all []named
		for _, f := range of {
			all = append(all, named{f.Name, f.Doc})
		}
		return offered(all, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

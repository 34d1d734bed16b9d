package race

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/child"
)

// Module is a PyTorch module that a rival trains in two stages, and that Export writes to a file.
type Module struct {
	Name         string // the function of peers/modules.py that builds it: gpt or resnet18
	LearningRate float64
	settings     map[string]any // arguments of the function that builds it
	script       string
	args         []string // arguments of the rival that are the same for any stages
	splits       []string // numbers of layers in the first stage that are worth trying; "": the script's own
	threads      []string
	batch, least int // rows of a step, and the fewest rows of a micro-batch
}

// Module returns the workload's gpt. `rows` is the file with the data for its rival, as Record writes it.
func (w Workload) Module(rows string) Module {
	return Module{Name: "gpt", LearningRate: w.LearningRate, settings: map[string]any{"layers": w.Layers,
		"width": w.Width, "heads": w.Heads, "context": w.Context, "vocabulary": w.Vocabulary, "seed": w.Seed},
		script: "onef1b.py", args: append(w.args(), "--rows", rows), splits: []string{""},
		threads: []string{"1", "2"}, batch: w.Batch, least: max(1, w.Batch/mostMicroBatches)}
}

// ResNet describes torchvision's resnet18 and its training, by SGD without momentum.
type ResNet struct {
	Classes, Size, Batch int // Size: height and width of an image
	LearningRate         float64
	Seed                 uint64
}

// Module returns the resnet18. `rows` is the file with the data for its rival, as Record writes it.
func (r ResNet) Module(rows string) Module {
	args := []string{"--classes", strconv.Itoa(r.Classes), "--size", strconv.Itoa(r.Size), "--batch",
		strconv.Itoa(r.Batch), "--lr", number(r.LearningRate), "--seed", strconv.FormatUint(r.Seed, 10), "--rows", rows}
	// A split is worth trying after 3 to 7 blocks: half of the operations are in the first four blocks, but most of the
	// parameters to update are in the last ones. A micro-batch has 4 rows or more: with fewer, the module's matrices
	// are too small, and batch statistics have no meaning.
	return Module{Name: "resnet18", LearningRate: r.LearningRate, settings: map[string]any{"classes": r.Classes,
		"size": r.Size, "seed": r.Seed}, script: "onef1b_resnet.py", args: args, splits: []string{"3", "4", "5", "6", "7"},
		threads: []string{"1"}, batch: r.Batch, least: min(4, r.Batch)}
}

// Rival returns the command that trains the module by 1F1B. A micro-batch has `micro` rows, and a visit has `steps`
// steps. `options` are further options of its script.
func (m Module) Rival(python, scripts string, micro, steps int, options ...string) Command {
	args := append([]string{"-B", filepath.Join(scripts, m.script), "--micro", strconv.Itoa(micro)}, m.args...)
	label := []string{fmt.Sprintf("micro-batch %d", micro)}
	for i := 0; i+1 < len(options); i += 2 {
		label = append(label, strings.TrimPrefix(options[i], "--")+" "+options[i+1])
	}
	return Command{Name: fmt.Sprintf("1F1B by hand (%s)", strings.Join(label, ", ")), Path: python,
		Args: append(args, options...), Steps: steps}
}

// Rivals returns the settings of Rival that are worth trying on two cores. They vary where the module is cut, the rows
// of a micro-batch (up to all rows of a step), threads, and the warm-up. `also` has the micro-batch sizes of the other
// side, which the rival may use too.
func (m Module) Rivals(python, scripts string, steps int, also ...int) (all []Command) {
	micros := slices.Clone(also)
	for micro := m.least; micro <= m.batch; micro *= 2 {
		micros = append(micros, micro)
	}
	slices.Sort(micros)
	micros = slices.Compact(micros)
	for _, split := range m.splits {
		var at []string
		if split != "" {
			at = []string{"--split", split}
		}
		for _, micro := range micros {
			if m.batch%micro != 0 {
				continue
			}
			for _, threads := range m.threads {
				all = append(all, m.Rival(python, scripts, micro, steps, append(at, "--threads", threads)...))
			}
			if m.batch/micro > 2 {
				all = append(all, m.Rival(python, scripts, micro, steps, append(at, "--threads", "1", "--warmup", "3")...))
			}
		}
	}
	return all
}

// Export writes the module with its initial weights to a file for millrace. `exporter` is the path of
// millrace_export.py.
func (m Module) Export(ctx context.Context, python, exporter, scripts, path string) error {
	text, err := json.Marshal(m.settings)
	if err == nil {
		err = os.WriteFile(filepath.Join(scripts, "workload.json"), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("race: the settings of %s: %w", m.Name, err)
	}
	said, err := child.Command(ctx, python, "-B", exporter, filepath.Join(scripts, "modules.py")+":"+m.Name, "-o",
		path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("race: %s does not export %s: %w: %s", exporter, m.Name, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// Record appends a batch to a file that rivals read: first its inputs, then its targets, as []float32 or []int64.
func Record(f *os.File, rows ...any) error {
	for _, part := range rows {
		if err := binary.Write(f, binary.NativeEndian, part); err != nil {
			return fmt.Errorf("race: recorded batches: %w", err)
		}
	}
	return nil
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// The size of the pipeline for which every schedule of the gallery is drawn.
const (
	galleryWorkers = "4"
	galleryMicros  = "8"
)

// origins says who invented each schedule.
var origins = map[string]string{
	"1f1b": "PipeDream's order with a flush: PipeDream-Flush (Narayanan et al., ICML 2021), DAPPLE's P_A (Fan et al., " +
		"PPoPP 2021), BaPipe's 1F1B-SNO",
	"1f1b-as":     "BaPipe (Zhao et al., 2020), for boards that send while they compute",
	"1f1b-rr":     "PipeDream (Narayanan et al., SOSP 2019); two buffered versions: PipeDream-2BW (ICML 2021)",
	"afab":        "GPipe (Huang et al., NeurIPS 2019)",
	"asp":         "DistBelief (Dean et al., NeurIPS 2012); with a bound on staleness: Ho et al., NeurIPS 2013",
	"bfs":         "Breadth-first pipeline parallelism (Lamy-Poirier, MLSys 2023)",
	"chimera":     "Chimera (Li and Hoefler, SC 2021)",
	"dp":          "synchronous data parallelism",
	"dp-async":    "Pipe-SGD (Li et al., NeurIPS 2018)",
	"dp-overlap":  "wait-free backpropagation: Poseidon (Zhang et al., ATC 2017), PyTorch's DistributedDataParallel",
	"elastic":     "AvgPipe (Chen et al., PPoPP 2023); the averaging is of EASGD (Zhang et al., NeurIPS 2015)",
	"fbp-as":      "FPDeep (Geng et al., 2018), as BaPipe has it",
	"interleaved": "Megatron-LM (Narayanan et al., SC 2021)",
	"mp":          "model parallelism without pipelining",
	"pb":          "DAPPLE's P_B (Fan et al., PPoPP 2021)",
	"single":      "gradient accumulation on one worker",
	"so":          "BaPipe's 1F1B-SO (Zhao et al., 2020)",
	"v-half":      "Pipeline parallelism with controllable memory (Qi et al., NeurIPS 2024)",
	"v-min":       "Pipeline parallelism with controllable memory (Qi et al., NeurIPS 2024)",
	"zb-auto":     "the automatic scheduler of Zero Bubble (Qi et al., ICLR 2024)",
	"zb-h1":       "Zero Bubble (Qi et al., ICLR 2024)",
	"zb-h2":       "Zero Bubble (Qi et al., ICLR 2024)",
	"zb-v": "Pipeline parallelism with controllable memory (Qi et al., NeurIPS 2024), first in Zero Bubble's second " +
		"version",
}

// listed is a schedule in `schedule ls --json`.
type listed struct {
	Name    string   `json:"name"`
	Doc     string   `json:"doc"`
	Weights []string `json:"weights"`
	Also    []string `json:"also"`
}

// compared is a row of `schedule compare --json`.
type compared struct {
	Schedule  string    `json:"schedule"`
	Weights   string    `json:"weights"`
	Replicas  int       `json:"replicas"`
	StepS     float64   `json:"step_s"`
	Bubble    float64   `json:"bubble"`
	PeakBytes []float64 `json:"peak_bytes"`
	Why       string    `json:"why"`
}

// activation is the number of bytes that `schedule compare` assumes for a micro-batch's activations on a worker.
const activation = 1 << 20

// gallery writes three things to the folder docs: schedules.md, one drawing for each schedule (schedules/NAME.svg), and
// cli.md, which lists the verbs. It asks the program millrace for the contents.
func gallery(millrace, docs string) error {
	ask := func(into any, args ...string) error {
		out, err := exec.Command(millrace, args...).Output()
		if err == nil {
			err = json.Unmarshal(out, into)
		}
		if err != nil {
			return fmt.Errorf("millrace %s: %w", strings.Join(args, " "), err)
		}
		return nil
	}
	var all []listed
	var rows, streaming []compared
	size := []string{"--workers", galleryWorkers, "--micro-batches", galleryMicros, "--json"}
	if err := ask(&all, "schedule", "ls", "--json"); err != nil {
		return err
	}
	if err := ask(&rows, append([]string{"schedule", "compare"}, size...)...); err != nil {
		return err
	}
	if err := ask(&streaming, append([]string{"schedule", "compare", "--streaming"}, size...)...); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(docs, "schedules"), 0o777); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(galleryHead)
	for _, f := range all {
		drawing := []string{"schedule", f.Name, "--workers", galleryWorkers}
		if !streams(f) {
			drawing = append(drawing, "--micro-batches", galleryMicros)
		}
		path := filepath.Join(docs, "schedules", f.Name+".svg")
		if said, err := exec.Command(millrace, append(drawing, "--svg", path)...).CombinedOutput(); err != nil {
			return fmt.Errorf("millrace %s: %w: %s", strings.Join(drawing, " "), err, said)
		}
		of, note := rowsOf(f, rows, streaming)
		if origins[f.Name] == "" {
			return fmt.Errorf("lab/pictures does not say who invented %s", f.Name)
		}
		writeFamily(&b, f, of, note, strings.Join(drawing, " "))
	}
	verbs, err := exec.Command(millrace, "help", "--markdown").Output()
	if err != nil {
		return fmt.Errorf("millrace help --markdown: %w", err)
	}
	return errors.Join(document.WriteText(filepath.Join(docs, "schedules.md"), b.String()),
		document.WriteText(filepath.Join(docs, "cli.md"), string(verbs)))
}

// streams reports whether a schedule is only for streams, so that a minibatch is its unit.
func streams(f listed) bool {
	return !slices.Contains(f.Weights, "sync") && !slices.Contains(f.Weights, "elastic")
}

// rowsOf returns the rows of `schedule compare` for a schedule. Streaming schedules get their rows from the parameter
// `streaming`: the comparison for devices that transfer while they compute.
func rowsOf(f listed, rows, streaming []compared) (of []compared, note string) {
	for _, r := range rows {
		if r.Schedule == f.Name && r.StepS > 0 {
			of = append(of, r)
		}
	}
	if len(of) > 0 {
		return of, ""
	}
	for _, r := range streaming {
		if r.Schedule == f.Name && r.StepS > 0 {
			of = append(of, r)
		}
	}
	return of, " (on devices that transfer while they compute)"
}

func writeFamily(b *strings.Builder, f listed, of []compared, note, drawing string) {
	said := fmt.Sprintf("%s. Invented by: %s.", upper(f.Doc), origins[f.Name])
	if len(f.Also) > 0 {
		said += fmt.Sprintf(" Also called: `%s`.", strings.Join(f.Also, "`, `"))
	}
	fmt.Fprintf(b, "\n## %s\n\n%s", f.Name, terminal.Screen{Columns: 120}.Wrap("", "", said))
	fmt.Fprintf(b, "\n| weights | steady step%s | bubble | memory |\n|---|---:|---:|---:|\n", note)
	for _, r := range of {
		weights := r.Weights
		if r.Replicas > 1 {
			weights = fmt.Sprintf("%s, each stage on %d workers", weights, r.Replicas)
		}
		fmt.Fprintf(b, "| %s | %.4g | %.1f %% | %.3g |\n", weights, r.StepS, 100*r.Bubble,
			slices.Max(r.PeakBytes)/activation)
	}
	fmt.Fprintf(b, "\n![%s on 4 workers](schedules/%s.svg)\n\n    millrace %s\n", f.Name, f.Name, drawing)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

const galleryHead = `# Schedules

Every schedule of millrace at one size: 4 workers, 8 micro-batches in a step, and equal stages. On each worker a forward
takes 1 unit of time and a backward 2. ` + "`make gallery`" + ` writes this page with the commands shown below.

- **Steady step**: the time of a step with others before and after it, in units of a forward. All schedules train the
  same model: each worker of a pipeline holds a quarter of it; data parallelism and one worker hold all of it.
- **Bubble**: the fraction of the workers' time in which they do not compute, in a steady step.
- **Memory**: the largest memory of any worker, with weights, gradients and versions. The unit is the memory that one
  micro-batch occupies on a worker until its backward. A worker's share of the weights takes one unit too.
- In the descriptions, S is the number of stages, and K_i the number of forwards that stage i runs before its first
  backward. A chunk is one of several stages on a worker. On a V, the first worker has the first and the last stage. A
  flush is the point at the end of a step where nothing is in flight; a schedule without one is a stream.
- The pictures show one step, or the beginning of a stream. In them every worker takes 1 for a forward and 2 for a
  backward, also a worker that holds the whole model. F is a forward, B a backward, I and W its halves (input and weight
  gradients), U an update.

` + "`millrace schedule compare`" + ` ranks schedules for other sizes, times, links and memory limits, with the reason
why each loses. ` + "`millrace plan`" + ` chooses one for a model and its machine. [Weight policies](weights.md)
explains the weights that each computation uses.
`

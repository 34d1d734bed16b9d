package exchange

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// PyTorch's schedule files (torch.distributed.pipelining, "compute_only") have one line of comma-separated actions
// for each rank. An action is a stage, a letter and a micro-batch; F, B, I and W mean the same as here. In an empty
// cell the rank waits. Two actions that overlap are written "(0F7;1B3)OVERLAP_F_B". Transfers are left out:
// PyTorch's runtime derives them, as Lower does here.

// WriteTorchCSV writes one step of a Program in PyTorch's form. It leaves out empty cells for waiting, which would not
// change the order. What the form cannot express is refused with the reason: minibatches that overlap, weights other
// than synchronous, several pipelines, replicas that take whole micro-batches in turn, unequal replicas, workers
// without a computation, evaluations, drains and checkpoints. Equal replicas that split each micro-batch are a mesh of
// data-parallel pipelines in PyTorch. The file then describes one of these pipelines: its ranks are the workers of the
// stages' first replicas, in ascending order. Recomputation belongs to the model in PyTorch and is refused here.
func WriteTorchCSV(w io.Writer, p *schedule.Program) error {
	if err := check.Validate(p); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("schedule: %s cannot be written for PyTorch: %s", p.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case len(p.Placement) != 1:
		return refuse("it has %d pipelines; a file has the stages of one", len(p.Placement))
	case p.Weights != schedule.Sync:
		return refuse("its weights are %s; PyTorch's schedules update synchronously, once a step", p.Weights)
	case p.Period != 1 || slices.ContainsFunc(p.Prologue, nonempty) || slices.ContainsFunc(p.Epilogue, nonempty):
		return refuse("its minibatches overlap; a file is one step that begins and ends with an empty pipeline")
	}
	replicas := len(p.Placement[0][0])
	var workers []int
	for s, on := range p.Placement[0] {
		if len(on) != replicas {
			return refuse("stage %d has %d replicas and stage 0 has %d; its ranks are a mesh, with as many "+
				"replicas of every stage", s, len(on), replicas)
		}
		if s < len(p.Recompute) && p.Recompute[s].Again() {
			return refuse("stage %d is recomputed; that is said in the model there, with torch.utils.checkpoint: "+
				"plan without", s)
		}
		workers = append(workers, on[0])
	}
	if replicas > 1 && p.Replication != schedule.Split {
		return refuse("its %d replicas take micro-batches in turn; replicas of a mesh take a slice of every one",
			replicas)
	}
	slices.Sort(workers)
	out := csv.NewWriter(w)
	for _, worker := range slices.Compact(workers) {
		var cells []string
		var list schedule.List // the list is empty if a part leaves out its last lists
		if worker < len(p.Body) {
			list = p.Body[worker]
		}
		for _, in := range list {
			if in.Replica != 0 {
				return refuse("worker %d has replica 0 of one stage and replica %d of another", worker, in.Replica)
			}
			switch in.Kind {
			case schedule.F, schedule.B, schedule.I, schedule.W:
				in.Pipeline, in.Replica = 0, 0
				cells = append(cells, in.String())
			case schedule.EV, schedule.DR, schedule.CK:
				return refuse("it has %s, which is no action there", in)
			}
		}
		if len(cells) == 0 {
			return refuse("worker %d computes nothing", worker)
		}
		if err := out.Write(cells); err != nil {
			return fmt.Errorf("schedule: writing PyTorch's schedule: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("schedule: writing PyTorch's schedule: %w", err)
	}
	return nil
}

func nonempty(l schedule.List) bool { return len(l) > 0 }

// ReadTorchCSV reads PyTorch's form: one step, not lowered. Each line is a worker, and each stage is on the worker
// whose line has it. Overlapping actions become consecutive ones, in the order written. The result still has to pass
// Check. Refused, with the line and cell if there is one: actions that move data (files saved with communication), a
// stage on two ranks, ranks without an action, and stages left out.
func ReadTorchCSV(r io.Reader) (*schedule.Program, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 2*schedule.MaxFile)
	var lists schedule.Part
	on := map[int32]int{}
	stages, micros, read, number := 0, 0, 0, 0
	for in.Scan() {
		number++
		line := strings.TrimSpace(in.Text())
		if line == "" {
			continue
		}
		worker, c := len(lists), 0
		fail := func(format string, args ...any) error {
			return fmt.Errorf("schedule: PyTorch's schedule, line %d, cell %d: %w", number, c, fmt.Errorf(format, args...))
		}
		var list schedule.List
		for cell := range strings.SplitSeq(line, ",") {
			c++
			actions, err := torchActions(unquoted(cell))
			if err != nil {
				return nil, fail("%w", err)
			}
			for _, a := range actions {
				if at, known := on[a.Stage]; known && at != worker {
					return nil, fail("%s is of stage %d, which is on rank %d; a stage is on one rank", a, a.Stage, at)
				}
				on[a.Stage] = worker
				stages, micros = max(stages, int(a.Stage)+1), max(micros, int(a.Micro)+1)
			}
			list = append(list, actions...)
			if read += len(actions); read > schedule.MaxInstructions {
				return nil, fail("a program can have %d instructions", schedule.MaxInstructions)
			}
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("schedule: PyTorch's schedule, line %d: rank %d has no action", number, worker)
		}
		lists = append(lists, list)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("schedule: PyTorch's schedule, line %d: %w", number+1, err)
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("schedule: PyTorch's schedule is empty; it has a line for each rank, like " +
			"0F0,0F1,0B0,0B1")
	}
	if stages > len(on) {
		for s := range int32(stages) {
			if _, known := on[s]; !known {
				return nil, fmt.Errorf("schedule: PyTorch's schedule has stage %d and no stage %d", stages-1, s)
			}
		}
	}
	placement := make([][]int, stages)
	for s := range placement {
		placement[s] = []int{on[int32(s)]}
	}
	settings, err := schedule.Settings{Placement: placement, MicroBatches: micros,
		Replication: schedule.Split}.Checked()
	if err != nil {
		return nil, fmt.Errorf("schedule: PyTorch's schedule: %w", err)
	}
	p := settings.Program()
	p.Name, p.Body = "torch", lists
	return p, nil
}

// unquoted returns the content of a cell that may be in quotes. No action contains a comma or a quote.
func unquoted(cell string) string {
	cell = strings.TrimSpace(cell)
	if len(cell) > 1 && cell[0] == '"' && cell[len(cell)-1] == '"' {
		cell = strings.TrimSpace(cell[1 : len(cell)-1])
	}
	return cell
}

func torchActions(cell string) (schedule.List, error) {
	if cell == "" {
		return nil, nil
	}
	words := []string{cell}
	if inner, ok := strings.CutPrefix(cell, "("); ok {
		inner, ok = strings.CutSuffix(inner, ")OVERLAP_F_B")
		if !ok {
			return nil, fmt.Errorf("action %.60q; actions together are written (0F7;1B3)OVERLAP_F_B", cell)
		}
		words = strings.Split(inner, ";")
	}
	var list schedule.List
	for _, word := range words {
		if strings.Contains(word, "_") || strings.Contains(word, "SHARD") {
			return nil, fmt.Errorf("action %.60q; only computation is read (F, B, I and W): save the schedule as "+
				"compute_only", word)
		}
		in, err := schedule.ParseInstruction(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if in.Kind != schedule.F && in.Kind != schedule.B && in.Kind != schedule.I && in.Kind != schedule.W ||
			in.Pipeline != 0 || in.Replica != 0 || in.Micro < 0 {
			return nil, fmt.Errorf("action %q; an action is a stage, F, B, I or W, and a micro-batch from 0", word)
		}
		list = append(list, in)
	}
	return list, nil
}

package shape_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/millrace-ml/millrace/tune/shape"
)

// table reads a published CSV file; each row maps columns to values.
func table(t *testing.T, name string) []map[string]string {
	t.Helper()
	f, err := os.Open("../../lab/reproduce/published/data/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		of := map[string]string{}
		for i, name := range rows[0] {
			of[name] = row[i]
		}
		out = append(out, of)
	}
	return out
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestBubbleRatesAsTheAuthorsCalculate: bubble rates are within half a point of those that the authors calculate (Qi et
// al., 2024, Table 5). The test computes them from the authors' stage times (Table 9).
func TestBubbleRatesAsTheAuthorsCalculate(t *testing.T) {
	times := map[string]map[string]string{}
	for _, row := range table(t, "zero_bubble_table9_stage_times.csv") {
		times[row["model"]+" "+row["pp"]+" "+row["microbatches"]] = row
	}
	// `layers` holds the number of layers on a device, where the embedding and the head each count as a layer. `scores`
	// holds the attention scores for each element of width: a*s/h, where a is the number of heads, s of positions, and h
	// the width.
	layers := map[string]int{"1.5B": 3, "6.2B": 4, "14.6B": 3, "28.3B": 2}
	scores := map[string]float64{"1.5B": 24 * 1024 / 2304., "6.2B": 8, "14.6B": 8, "28.3B": 8}
	seen := 0
	for _, row := range table(t, "zero_bubble_bubble_rates_calculated.csv") {
		of, ok := times[row["model"]+" "+row["pp"]+" "+row["microbatches"]]
		if !ok || row["table"] != "T5" { // Table 8 has numbers of micro-batches that Table 9 lacks
			continue
		}
		p, m := int(number(t, row["pp"])), int(number(t, row["microbatches"]))
		s := shape.Shape{Stages: p, Batch: m, MicroBatch: 1, NoFlush: true}
		switch row["schedule"] {
		case "1F1B":
			s.Schedule = "1f1b"
		case "1F1B-I":
			s.Schedule, s.Chunks = "interleaved", layers[row["model"]]
		case "ZB-H1":
			s.Schedule = "zb-h1"
		case "ZB-H2":
			s.Schedule = "zb-h2"
		case "ZB-1p":
			s.Schedule, s.Room = "zb-auto", p
		case "ZB-2p":
			s.Schedule, s.Room = "zb-auto", 2*p
		default:
			t.Fatalf("schedule %s", row["schedule"])
		}
		f, i, w := number(t, of["t_forward_ms"]), number(t, of["t_backward_input_ms"]), number(t, of["t_backward_weight_ms"])
		step, err := shape.Uniform(s, f, i, w, number(t, of["t_comm_ms"]), 32/(34+5*scores[row["model"]]))
		if err != nil {
			t.Fatal(err)
		}
		seen++
		rate, want := 1-float64(m)*(f+i+w)/step, number(t, row["bubble_rate"])
		what := fmt.Sprintf("%s %s, p %d, m %d", row["model"], row["schedule"], p, m)
		if math.Abs(rate-want) > 0.005 {
			t.Errorf("%s: %.4f, want %.4f", what, rate, want)
		}
	}
	if seen != 72 {
		t.Errorf("%d rows are compared; four models, three numbers of micro-batches and six schedules are 72", seen)
	}
}

package metrics

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

var noon = time.Unix(1_700_000_000, 500_000_000)

func values() StepValues {
	return StepValues{Time: noon, Step: 3, Loss: 2.5, LearningRate: .001, StepS: .8, SamplesPerSecond: 40, Bubble: .125,
		BusyS: []float64{.7, .69}, PeakBytes: []int64{1 << 20, 2 << 20}, LiveBytes: []int64{1 << 19, 1 << 20},
		SentBytes: []int64{4096, 1024}, ReceivedBytes: []int64{1024, 4096}, Samples: 320, GradientNorm: 3.5,
		Stragglers: map[int]float64{1: 1.5}}
}

// TestCRCOfTheStandard: the CRC32C of "123456789" is 0xe3069283 (RFC 3720, B.4, and Castagnoli's check value). The mask
// rotates the CRC by 15 bits and adds a constant.
func TestCRCOfTheStandard(t *testing.T) {
	if c := crc32.Checksum([]byte("123456789"), castagnoli); c != 0xe3069283 {
		t.Fatalf("CRC32C is %#x", c)
	}
	want := uint32((0xe3069283>>15|0xe3069283<<17&0xffffffff)+0xa282ead8) & 0xffffffff
	if got := maskedCRC([]byte("123456789")); got != want {
		t.Errorf("masked %#x, want %#x", got, want)
	}
}

// TestTensorBoardBytes checks the version record and one record of scalars, byte by byte.
func TestTensorBoardBytes(t *testing.T) {
	var b bytes.Buffer
	tb, err := NewTensorBoard(&b, noon)
	if err != nil {
		t.Fatal(err)
	}
	version := strings.Join([]string{
		"1800000000000000", "a37f4b22", // 24 bytes follow; then the checksum of this length
		"09", "00002040fc54d941", // wall_time = 1700000000.5
		"1a0d", hex.EncodeToString([]byte("brain.Event:2")), // file_version
	}, "")
	if got := hex.EncodeToString(b.Bytes()); !strings.HasPrefix(got, version) {
		t.Errorf("the file begins\n%s, want\n%s", got, version)
	}
	b.Reset()
	if err := tb.Evaluation(EvaluationValues{Time: noon, Step: 300, Loss: 1.5, Accuracy: new(.75)}); err != nil {
		t.Fatal(err)
	}
	payload := strings.Join([]string{
		"09", "00002040fc54d941",
		"10ac02",                                                                    // step = 300
		"2a34",                                                                      // summary, 52 bytes
		"0a16", "0a0f", hex.EncodeToString([]byte("evaluation/loss")), "150000c03f", // 1.5
		"0a1a", "0a13", hex.EncodeToString([]byte("evaluation/accuracy")), "150000403f", // 0.75
	}, "")
	if got := hex.EncodeToString(b.Bytes()[12 : b.Len()-4]); got != payload {
		t.Errorf("the record holds\n%s, want\n%s", got, payload)
	}
}

// TestTensorBoardRecords reads a file as TensorBoard does: lengths and checksums are right, and the scalars are
// there.
func TestTensorBoardRecords(t *testing.T) {
	var b bytes.Buffer
	tb, err := NewTensorBoard(&b, noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tb.Step(values()), tb.Close()); err != nil {
		t.Fatal(err)
	}
	var records [][]byte
	for rest := b.Bytes(); len(rest) > 0; {
		n := binary.LittleEndian.Uint64(rest)
		if binary.LittleEndian.Uint32(rest[8:]) != maskedCRC(rest[:8]) {
			t.Fatal("the checksum of a length is wrong")
		}
		payload := rest[12 : 12+n]
		if binary.LittleEndian.Uint32(rest[12+n:]) != maskedCRC(payload) {
			t.Fatal("the checksum of a payload is wrong")
		}
		records, rest = append(records, payload), rest[16+n:]
	}
	if len(records) != 2 {
		t.Fatalf("%d records, want 2", len(records))
	}
	got := map[string]float32{}
	for _, value := range valuesOf(t, valuesOf(t, records[1], 5)[0], 1) {
		tag, bits := valuesOf(t, value, 1)[0], valuesOf(t, value, 2)[0]
		got[string(tag)] = math.Float32frombits(binary.LittleEndian.Uint32(bits))
	}
	want := map[string]float32{
		"train/loss": 2.5, "train/learning_rate": .001,
		"pipeline/step_s": .8, "pipeline/samples_per_s": 40, "pipeline/bubble": .125,
		"pipeline/busy_s/worker_0": .7, "pipeline/busy_s/worker_1": .69,
		"memory/peak_bytes/worker_0": 1 << 20, "memory/peak_bytes/worker_1": 2 << 20,
		"memory/live_bytes/worker_0": 1 << 19, "memory/live_bytes/worker_1": 1 << 20, "train/gradient_norm": 3.5,
	}
	if len(got) != len(want) {
		t.Errorf("scalars %v, want %v", got, want)
	}
	for tag, x := range want {
		if got[tag] != x {
			t.Errorf("%s is %v, want %v", tag, got[tag], x)
		}
	}
	if name := TensorBoardName(noon, "host"); name != "events.out.tfevents.1700000000.host" {
		t.Errorf("file name %q", name)
	}
}

// valuesOf returns the values of one field of a protobuf message, in order.
func valuesOf(t *testing.T, message []byte, field protowire.Number) (values [][]byte) {
	t.Helper()
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatalf("bad tag: %v", protowire.ParseError(n))
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			t.Fatalf("bad value of field %d: %v", number, protowire.ParseError(n))
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if number == field {
			values = append(values, value)
		}
		message = message[n:]
	}
	return values
}

func TestJSONL(t *testing.T) {
	var b bytes.Buffer
	j := NewJSONL(&b)
	said := EvaluationValues{Time: noon, Step: 3, Loss: 1, Accuracy: new(.5)}
	if err := errors.Join(j.Step(values()), j.Evaluation(said), j.Close()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	var step StepValues
	if err := json.Unmarshal([]byte(lines[0]), &step); err != nil || step.Loss != 2.5 || step.BusyS[1] != .69 {
		t.Errorf("line 1 is %s, %v", lines[0], err)
	}
	if !strings.Contains(lines[1], `"evaluation_accuracy":0.5`) {
		t.Errorf("line 2 is %s", lines[1])
	}
	v := values()
	v.Loss = math.NaN()
	if err := j.Step(v); err == nil || !strings.Contains(err.Error(), "step 3") {
		t.Errorf("NaN: error %v", err)
	}
}

func TestPrometheus(t *testing.T) {
	p := NewPrometheus(map[string]string{"model": "gpt"}, []Worker{{"a", "0"}, {"b", "1"}})
	early := httptest.NewRecorder()
	p.Handler().ServeHTTP(early, httptest.NewRequest("GET", "/metrics", nil))
	if body := early.Body.String(); strings.Contains(body, "millrace_loss") ||
		!strings.Contains(body, `millrace_steps_total{model="gpt"} 0`) {
		t.Errorf("before the first step a scrape says\n%s", body)
	}
	v := values()
	scrape := func() string {
		answer := httptest.NewRecorder()
		p.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		return answer.Body.String()
	}
	if err := p.Step(v); err != nil {
		t.Fatal(err)
	}
	if says := `millrace_worker_straggler_ratio{host="b",model="gpt",stage="1",worker="1"} 1.5`; !strings.Contains(
		scrape(), says) {
		t.Errorf("a scrape does not say %s; it says\n%s", says, scrape())
	}
	v.Samples, v.SentBytes, v.Stragglers = 640, []int64{8192, 2048}, nil
	if err := p.Step(v); err != nil {
		t.Fatal(err)
	}
	if err := p.Evaluation(EvaluationValues{Loss: 1.25, Accuracy: new(.875)}); err != nil {
		t.Fatal(err)
	}
	said := scrape()
	if strings.Contains(said, "straggler_ratio{") {
		t.Errorf("one that is no straggler any more is told as one:\n%s", said)
	}
	for _, want := range []string{
		`millrace_loss{model="gpt"} 2.5`, `millrace_step{model="gpt"} 3`, `millrace_steps_total{model="gpt"} 2`,
		`millrace_bubble_ratio{model="gpt"} 0.125`,
		`millrace_step_seconds_count{model="gpt"} 2`, `millrace_evaluation_accuracy_ratio{model="gpt"} 0.875`,
		`millrace_samples_total{model="gpt"} 640`, `millrace_gradient_norm{model="gpt"} 3.5`,
		`millrace_worker_busy_seconds{host="a",model="gpt",stage="0",worker="0"} 0.7`,
		`millrace_worker_peak_memory_bytes{host="b",model="gpt",stage="1",worker="1"} 2.097152e+06`,
		`millrace_worker_live_memory_bytes{host="a",model="gpt",stage="0",worker="0"} 524288`,
		`millrace_worker_sent_bytes_total{host="b",model="gpt",stage="1",worker="1"} 2048`,
		`millrace_worker_received_bytes_total{host="a",model="gpt",stage="0",worker="0"} 1024`,
		`millrace_busy_seconds{model="gpt"} 1.39`, `millrace_peak_memory_bytes{model="gpt"} 3.145728e+06`,
		`millrace_live_memory_bytes{model="gpt"} 1.572864e+06`, `millrace_sent_bytes_total{model="gpt"} 10240`,
		`millrace_received_bytes_total{model="gpt"} 5120`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("a scrape does not say %s; it says\n%s", want, said)
		}
	}
	if NewPrometheus(nil, nil).registry == p.registry {
		t.Error("two runs share a registry")
	}
}

type broken struct{ Sink }

func (broken) Step(StepValues) error { return errors.New("disk full") }

func TestOneBadSinkDoesNotStopTheOthers(t *testing.T) {
	var b bytes.Buffer
	err := Sinks{broken{}, NewJSONL(&b)}.Step(values())
	if err == nil || !strings.Contains(err.Error(), "disk full") || b.Len() == 0 {
		t.Errorf("error %v, %d bytes written", err, b.Len())
	}
}

// A step without idle time has a bubble of 0. TensorBoard has this value too, so that its curve is that of all steps.
func TestTensorBoardHasABubbleOfZero(t *testing.T) {
	for _, k := range []struct {
		stepS float64
		want  bool
	}{{.8, true}, {0, false}} { // without a time no bubble is known
		v := values()
		v.StepS, v.Bubble = k.stepS, 0
		var b bytes.Buffer
		tb, err := NewTensorBoard(&b, noon)
		if err := errors.Join(err, tb.Step(v), tb.Close()); err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(b.Bytes(), []byte("pipeline/bubble")); has != k.want {
			t.Errorf("a step of %v s: bubble written %v, want %v", k.stepS, has, k.want)
		}
	}
}

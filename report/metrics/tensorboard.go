package metrics

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TensorBoard is a Sink that writes an event file. The file is a sequence of records with checksums. Their payloads
// are Event messages of tensorflow/core/util/event.proto.
type TensorBoard struct{ w *bufio.Writer }

// Fields of Event, Summary and Summary.Value.
const (
	eventWallTime    = 1
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5
	summaryValue     = 1
	valueTag         = 1
	valueSimple      = 2
)

// TensorBoardName returns a name for an event file. TensorBoard finds only names that contain "tfevents".
func TensorBoardName(start time.Time, host string) string {
	return fmt.Sprintf("events.out.tfevents.%d.%s", start.Unix(), host)
}

// NewTensorBoard writes to w, which it does not close, beginning with the version record.
func NewTensorBoard(w io.Writer, start time.Time) (*TensorBoard, error) {
	t := &TensorBoard{bufio.NewWriter(w)}
	event := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	event = protowire.AppendFixed64(event, math.Float64bits(unix(start)))
	event = protowire.AppendTag(event, eventFileVersion, protowire.BytesType)
	event = protowire.AppendString(event, "brain.Event:2")
	return t, t.record(event)
}

// Step writes the scalars of a step under train/ and pipeline/ and memory/.
func (t *TensorBoard) Step(v StepValues) error {
	s := []scalar{{"train/loss", v.Loss}}
	for _, extra := range []scalar{{"train/learning_rate", v.LearningRate}, {"train/gradient_norm", v.GradientNorm},
		{"pipeline/step_s", v.StepS}, {"pipeline/samples_per_s", v.SamplesPerSecond}} {
		if extra.value != 0 {
			s = append(s, extra)
		}
	}
	if v.StepS != 0 { // else no bubble is known; a bubble of 0 is
		s = append(s, scalar{"pipeline/bubble", v.Bubble})
	}
	for w, busy := range v.BusyS {
		s = append(s, scalar{"pipeline/busy_s/worker_" + strconv.Itoa(w), busy})
	}
	for w, b := range v.PeakBytes {
		s = append(s, scalar{"memory/peak_bytes/worker_" + strconv.Itoa(w), float64(b)})
	}
	for w, b := range v.LiveBytes {
		s = append(s, scalar{"memory/live_bytes/worker_" + strconv.Itoa(w), float64(b)})
	}
	return t.scalars(v.Time, v.Step, s)
}

// Evaluation writes the scalars of an evaluation under evaluation/.
func (t *TensorBoard) Evaluation(v EvaluationValues) error {
	s := []scalar{{"evaluation/loss", v.Loss}}
	if v.Accuracy != nil {
		s = append(s, scalar{"evaluation/accuracy", *v.Accuracy})
	}
	for _, name := range slices.Sorted(maps.Keys(v.Reported)) {
		if value := v.Reported[name]; value != nil {
			s = append(s, scalar{"evaluation/" + name, *value})
		}
	}
	if v.Apart != nil {
		s = append(s, scalar{"evaluation/reference_apart", *v.Apart})
	}
	return t.scalars(v.Time, v.Step, s)
}

// Close writes what is still buffered.
func (t *TensorBoard) Close() error {
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("report: tensorboard: %w", err)
	}
	return nil
}

type scalar struct {
	tag   string
	value float64
}

func (t *TensorBoard) scalars(at time.Time, step int, scalars []scalar) error {
	var summary []byte
	for _, s := range scalars {
		value := protowire.AppendTag(nil, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, s.tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(s.value)))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	event := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	event = protowire.AppendFixed64(event, math.Float64bits(unix(at)))
	event = protowire.AppendTag(event, eventStep, protowire.VarintType)
	event = protowire.AppendVarint(event, uint64(step))
	event = protowire.AppendTag(event, eventSummary, protowire.BytesType)
	event = protowire.AppendBytes(event, summary)
	return t.record(event)
}

// record writes length, checksum of the length, payload and checksum of the payload. It flushes, so that TensorBoard
// sees the step while the run goes on.
func (t *TensorBoard) record(payload []byte) error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(payload)))
	head = binary.LittleEndian.AppendUint32(head, maskedCRC(head))
	t.w.Write(head)
	t.w.Write(payload)
	t.w.Write(binary.LittleEndian.AppendUint32(nil, maskedCRC(payload)))
	return t.Close()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC returns the CRC32C of b, rotated by 15 bits, plus a constant. Event files store checksums in this form,
// because the plain CRC of data that contains CRCs is a poor check.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

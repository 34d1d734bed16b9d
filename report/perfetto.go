package report

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers and enum values of Perfetto's messages: TracePacket, TrackDescriptor, ProcessDescriptor,
// CounterDescriptor, TrackEvent and DebugAnnotation.
const (
	tracePacket = 1

	packetTimestamp  = 8
	packetSequence   = 10
	packetTrackEvent = 11
	packetDescriptor = 60

	descriptorUUID    = 1
	descriptorName    = 2
	descriptorProcess = 3
	descriptorParent  = 5
	descriptorCounter = 8
	processPID        = 1
	processName       = 6
	counterUnit       = 3
	unitBytes         = 3

	eventDebug        = 4
	eventType         = 9
	eventTrackUUID    = 11
	eventCategories   = 22
	eventName         = 23
	eventCounterValue = 30
	eventDoubleValue  = 44
	eventFlowIDs      = 47
	debugName         = 10
	debugInt          = 4
	debugString       = 6

	sliceBegin  = 1
	sliceEnd    = 2
	counterType = 4
)

// Perfetto writes the Timeline as a Perfetto protobuf trace, to open at ui.perfetto.dev. It has a process for each
// worker, or for each process of the run if there were several. It has computations, waits with their reasons,
// transfers, a memory counter, arrows from each send to its receive, and a counter of losses.
func Perfetto(w io.Writer, t *trace.Timeline) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("report: perfetto: %w", err)
	}
	t = fromZero(t)
	p := &perfetto{w: bufio.NewWriter(w)}
	homes := homes(t)
	for _, number := range slices.Sorted(maps.Keys(homes)) {
		p.describe(processUUID(number), 0, homes[number], func(b []byte) []byte {
			process := varint(nil, processPID, uint64(number)+1)
			process = str(process, processName, homes[number])
			return message(b, descriptorProcess, process)
		})
	}
	for i, tr := range tracksOf(t) {
		id := trackUUID(i)
		process, _, prefix := home(t, tr.worker)
		p.describe(id, processUUID(process), prefix+tr.name, nil)
		for k := range tr.slices {
			p.slice(id, &tr.slices[k])
		}
	}
	if len(t.Memory) > 0 {
		for worker := range t.Workers {
			process, _, prefix := home(t, worker)
			p.describe(memoryUUID(worker), processUUID(process), prefix+"memory", func(b []byte) []byte {
				return message(b, descriptorCounter, varint(nil, counterUnit, unitBytes))
			})
		}
		for _, m := range t.Memory {
			p.event(nanoseconds(m.AtS), func(b []byte) []byte {
				b = varint(b, eventType, counterType)
				b = varint(b, eventTrackUUID, memoryUUID(m.Worker))
				return varint(b, eventCounterValue, uint64(m.Bytes))
			})
		}
	}
	p.losses(t)
	if p.err == nil {
		p.err = p.w.Flush()
	}
	if p.err != nil {
		return fmt.Errorf("report: perfetto: %w", p.err)
	}
	return nil
}

// Numbers of tracks. They only need to be different; the viewer reserves 0.
func processUUID(process int) uint64 { return 1<<32 + uint64(process) }
func memoryUUID(worker int) uint64   { return 2<<32 + uint64(worker) }
func trackUUID(i int) uint64         { return 3<<32 + uint64(i) }

const lossUUID = 4 << 32

type perfetto struct {
	w   *bufio.Writer
	err error
}

func (p *perfetto) packet(body []byte) {
	if p.err == nil {
		_, p.err = p.w.Write(message(nil, tracePacket, varint(body, packetSequence, 1)))
	}
}

func (p *perfetto) describe(id, parent uint64, name string, more func([]byte) []byte) {
	d := varint(nil, descriptorUUID, id)
	d = str(d, descriptorName, name)
	if parent != 0 {
		d = varint(d, descriptorParent, parent)
	}
	if more != nil {
		d = more(d)
	}
	p.packet(message(nil, packetDescriptor, d))
}

func (p *perfetto) event(atNS int64, fill func([]byte) []byte) {
	p.packet(message(varint(nil, packetTimestamp, uint64(atNS)), packetTrackEvent, fill(nil)))
}

func (p *perfetto) slice(id uint64, s *slice) {
	p.event(s.startNS, func(b []byte) []byte {
		b = varint(b, eventType, sliceBegin)
		b = varint(b, eventTrackUUID, id)
		b = str(b, eventCategories, s.kind)
		b = str(b, eventName, s.name)
		if s.why != "" {
			return debugText(b, "why", s.why)
		}
		b = debugText(b, "what", trace.Plain(s.kind))
		b = debugNumber(b, "step", int64(s.step))
		if s.bytes > 0 {
			b = debugNumber(b, "bytes", s.bytes)
		}
		if s.note != "" {
			b = debugText(b, "clocks", s.note)
		}
		if s.flowOut != "" {
			b = flowID(b, s.flowOut)
		}
		if s.hasFlowStart {
			b = flowID(b, s.flowIn)
		}
		return b
	})
	p.event(s.endNS, func(b []byte) []byte {
		b = varint(b, eventType, sliceEnd)
		return varint(b, eventTrackUUID, id)
	})
}

// losses writes the loss of each step at the step's end.
func (p *perfetto) losses(t *trace.Timeline) {
	if len(t.Losses) == 0 || len(t.Steps) == 0 {
		return
	}
	end := map[int]float64{}
	for _, s := range t.Steps {
		end[s.Step] = s.EndS
	}
	p.describe(lossUUID, 0, "loss", func(b []byte) []byte { return message(b, descriptorCounter, nil) })
	for _, l := range t.Losses {
		at, ok := end[l.Step]
		if !ok {
			continue
		}
		p.event(nanoseconds(at), func(b []byte) []byte {
			b = varint(b, eventType, counterType)
			b = varint(b, eventTrackUUID, lossUUID)
			b = protowire.AppendTag(b, eventDoubleValue, protowire.Fixed64Type)
			return protowire.AppendFixed64(b, math.Float64bits(l.Value))
		})
	}
}

func flowID(b []byte, name string) []byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	b = protowire.AppendTag(b, eventFlowIDs, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, h.Sum64())
}

func debugText(b []byte, name, value string) []byte {
	return message(b, eventDebug, str(str(nil, debugName, name), debugString, value))
}

func debugNumber(b []byte, name string, value int64) []byte {
	return message(b, eventDebug, varint(str(nil, debugName, name), debugInt, uint64(value)))
}

func varint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func str(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func message(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

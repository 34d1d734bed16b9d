package links

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/wire"
)

// Link is a measured link, as the leading side saw it.
type Link struct {
	LatencyS float64 `json:"latency_s"` // of a frame of wordBytes, one way
	// ThereBytesPerSecond and BackBytesPerSecond are measured with many frames in a row, in each direction.
	ThereBytesPerSecond float64 `json:"there_bytes_per_s"`
	BackBytesPerSecond  float64 `json:"back_bytes_per_s"`
}

const (
	wordBytes  = 16 // length of a word or of its answer, in bytes
	warm       = 20
	mostPings  = 400
	leastPings = 8
	pingS      = 0.1 // once there are more than leastPings pings, no ping begins after this many seconds
	frameBytes = 256 << 10
	enoughS    = 0.1 // seconds that the frames of a try should take
	mostFrames = 1 << 12
	tries      = 3
	inFlight   = 4 // number of frames posted at once
)

// These are the words that the leader sends. Their comments say what the answering side does.
const (
	ping uint64 = iota
	take        // receive this number of frames, and answer when all have arrived
	give        // send this number of frames
	over
)

// Lead measures the link to peer, which must call Answer.
func Lead(ctx context.Context, c wire.Carrier, peer int) (Link, error) {
	t := newTalk(ctx, c, peer, true)
	defer t.close()
	l, err := t.lead()
	if err != nil {
		return Link{}, fmt.Errorf("links: %w", err)
	}
	return l, nil
}

// Answer is the other end of a measurement: peer must call Lead.
func Answer(ctx context.Context, c wire.Carrier, peer int) error {
	t := newTalk(ctx, c, peer, false)
	defer t.close()
	if err := t.answer(); err != nil {
		return fmt.Errorf("links: %w", err)
	}
	return nil
}

// talk is one end of a measurement.
type talk struct {
	c     wire.Carrier
	peer  int
	words [2]*lane // the lane from the leader, and the lane to the leader
	loads [2]*lane
	leads bool
	stop  func() bool
}

// lane is an edge and the number of its next frame.
type lane struct {
	wire.Edge
	n    uint32
	room [][]byte // memory for the loads
}

func newTalk(ctx context.Context, c wire.Carrier, peer int, leads bool) *talk {
	t := &talk{c: c, peer: peer, leads: leads}
	from, to := c.Rank(), peer
	if !leads {
		from, to = to, from
	}
	for i, lanes := range []*[2]*lane{&t.words, &t.loads} {
		lanes[0] = &lane{Edge: wire.Edge{ID: uint32(2 * i), From: from, To: to, Class: wire.Collectives}}
		lanes[1] = &lane{Edge: wire.Edge{ID: uint32(2*i + 1), From: to, To: from, Class: wire.Collectives}}
	}
	t.stop = context.AfterFunc(ctx, crash.Caught(func() { c.Fail(peer, context.Cause(ctx)) }))
	return t
}

func (t *talk) close() { t.stop() }

// mine returns the lane on which this end sends or, if `sends` is false, the lane on which it receives.
func (t *talk) mine(lanes *[2]*lane, sends bool) *lane {
	if t.leads == sends {
		return lanes[0]
	}
	return lanes[1]
}

func bufferOf(data []byte) *wire.Buffer {
	return &wire.Buffer{DType: wire.U8, Shape: []int64{int64(len(data))}, Data: data}
}

// post sends or receives the next frame of a lane.
func (t *talk) post(on *lane, sends bool, b *wire.Buffer, done func(error)) {
	n := on.n
	on.n++
	if sends {
		t.c.Send(1, on.Edge, n, []*wire.Buffer{b}, done)
		return
	}
	if t.c.HandsOver(t.peer) {
		b.Data = nil
	}
	t.c.Recv(on.Edge, n, b, done)
}

// word sends a word, or receives one.
func (t *talk) word(sends bool, word *[2]uint64) error {
	text := make([]byte, wordBytes)
	for i, v := range word {
		binary.LittleEndian.PutUint64(text[8*i:], v)
	}
	b := bufferOf(text)
	said := make(chan error, 1)
	t.post(t.mine(&t.words, sends), sends, b, func(err error) { said <- err })
	if err := <-said; err != nil || sends {
		return err
	}
	for i := range word {
		word[i] = binary.LittleEndian.Uint64(b.Data[8*i:])
	}
	return nil
}

// ask sends a word and waits for the answer.
func (t *talk) ask(word [2]uint64) error {
	if err := t.word(true, &word); err != nil {
		return err
	}
	return t.word(false, &word)
}

// frames sends or receives `count` frames. Each frame in flight has its own memory. If the carrier hands memory over to
// the receiver, each frame is copied before it is sent, as a worker would do.
func (t *talk) frames(sends bool, count int) error {
	on := t.mine(&t.loads, sends)
	for len(on.room) < inFlight+1 {
		on.room = append(on.room, make([]byte, frameBytes))
	}
	said := make(chan error, count)
	copies := sends && t.c.HandsOver(t.peer)
	for i := range count {
		if i >= inFlight {
			if err := <-said; err != nil {
				return err
			}
		}
		data := on.room[i%inFlight]
		if copies {
			copy(data, on.room[inFlight])
		}
		t.post(on, sends, bufferOf(data), func(err error) { said <- err })
	}
	for range min(count, inFlight) {
		if err := <-said; err != nil {
			return err
		}
	}
	return nil
}

func (t *talk) lead() (l Link, err error) {
	var took []float64
	for began := time.Now(); len(took) < warm+mostPings; {
		at := time.Now()
		if err := t.ask([2]uint64{ping}); err != nil {
			return l, err
		}
		took = append(took, time.Since(at).Seconds())
		if len(took) > leastPings && time.Since(began).Seconds() > pingS {
			break
		}
	}
	l.LatencyS = stats.Median(took[min(warm, len(took)/2):]) / 2
	if l.ThereBytesPerSecond, err = t.rate(take, l.LatencyS); err != nil {
		return l, err
	}
	if l.BackBytesPerSecond, err = t.rate(give, l.LatencyS); err != nil {
		return l, err
	}
	return l, t.word(true, &[2]uint64{over})
}

// rate returns the bandwidth in one direction, in bytes per second. The number of frames is doubled until a try takes
// enoughS or has mostFrames frames. Of several such tries the fastest counts, because the others must have been slowed
// down by something other than the link.
func (t *talk) rate(what uint64, latencyS float64) (float64, error) {
	count := 1
	var rates []float64
	for len(rates) < tries {
		began := time.Now()
		if err := t.try(what, count); err != nil {
			return 0, err
		}
		took := time.Since(began).Seconds()
		if took < enoughS && count < mostFrames && len(rates) == 0 {
			count *= 2
			continue
		}
		rates = append(rates, float64(count)*frameBytes/max(took-2*latencyS, took/10))
	}
	return slices.Max(rates), nil
}

func (t *talk) try(what uint64, count int) error {
	if err := t.word(true, &[2]uint64{what, uint64(count)}); err != nil {
		return err
	}
	if err := t.frames(what == take, count); err != nil {
		return err
	}
	return t.word(false, new([2]uint64))
}

func (t *talk) answer() error {
	for {
		var said [2]uint64
		if err := t.word(false, &said); err != nil {
			return err
		}
		what, count := said[0], said[1]
		switch {
		case what == over:
			return nil
		case what > over || count > mostFrames:
			return fmt.Errorf("worker %d says %d of %d frames, which is no word of a measurement", t.peer, what, count)
		case what != ping:
			if err := t.frames(what == give, int(count)); err != nil {
				return err
			}
		}
		if err := t.word(true, &said); err != nil {
			return err
		}
	}
}

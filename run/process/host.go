package process

import (
	"fmt"
	"sync/atomic"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage"
)

// lent is vectors of a stage in host memory, where a sum of ours works beside the worker. The worker lends
// them, whoever sums waits until they are there and says when it is done, and the worker lands them: what is
// in host memory by then is the vectors' again.
type lent struct {
	now     bool // whoever reads does not wait
	vectors []stage.Vector
	hosts   []engine.Host
	summed  atomic.Bool // it is done
}

// fetch copies vectors to host memory, behind what the device was told so far. Whoever reads them waits.
func (w *worker) fetch(at Wait, vectors []stage.Vector) (*lent, error) {
	l := &lent{vectors: vectors, now: !w.job.waits(at)}
	for _, v := range vectors {
		host, err := w.dev.ToHost(v.Tensor)
		if err != nil {
			l.free()
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		l.hosts = append(l.hosts, host)
	}
	return l, nil
}

// lend fetches vectors that come back.
func (w *worker) lend(h *holding, at Wait, vectors []stage.Vector) (*lent, error) {
	l, err := w.fetch(at, vectors)
	if err == nil {
		h.lent = append(h.lent, l)
	}
	return l, err
}

// wait blocks until all bytes are there.
func (l *lent) wait() error {
	if l.now {
		return nil
	}
	for i, host := range l.hosts {
		if err := host.Ready().Wait(); err != nil {
			return fmt.Errorf("%s: %w", l.vectors[i].Name, err)
		}
	}
	return nil
}

// bytes is how many are lent.
func (l *lent) bytes() int64 {
	var n int64
	for _, v := range l.vectors {
		n += v.Tensor.Bytes()
	}
	return n
}

// numbers waits, reads all of what is lent as float64, and frees it.
func (l *lent) numbers() ([]float64, error) {
	defer l.free()
	if err := l.wait(); err != nil {
		return nil, err
	}
	var all []float64
	for i, host := range l.hosts {
		if l.vectors[i].Tensor.DType() == engine.Float64 {
			all = append(all, engine.Numbers[float64](host.Bytes())...)
			continue
		}
		for _, x := range engine.Numbers[float32](host.Bytes()) {
			all = append(all, float64(x))
		}
	}
	return all, nil
}

func (l *lent) free() {
	for _, host := range l.hosts {
		host.Free()
	}
	l.hosts = nil
}

// land takes back what has been summed, in the order in which it was lent.
func (w *worker) land(h *holding) error {
	for len(h.lent) > 0 && h.lent[0].summed.Load() {
		l := h.lent[0]
		h.lent = h.lent[1:]
		for i, host := range l.hosts {
			if !w.job.waits(waitLanded) {
				break
			}
			if err := w.dev.FromHost(l.vectors[i].Tensor, host); err != nil {
				l.free()
				return fmt.Errorf("%s: %w", l.vectors[i].Name, err)
			}
		}
		l.free()
	}
	return nil
}

package ref

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

// Begin implements engine.Device.
func (d *Device) Begin() engine.Mark {
	d.marks = append(d.marks, len(d.open))
	return engine.Mark(len(d.marks) - 1)
}

// End implements engine.Device.
func (d *Device) End(m engine.Mark, keep ...engine.Tensor) {
	if int(m) < 0 || int(m) >= len(d.marks) {
		panic(fmt.Sprintf("engine ref: End(%d) with %d open scopes", m, len(d.marks)))
	}
	start := d.marks[m]
	d.marks = d.marks[:m]
	made := slices.Clone(d.open[start:])
	d.open = d.open[:start]
	for _, t := range made {
		switch {
		case t.owned || t.freed.Load():
		case slices.Contains(keep, engine.Tensor(t)):
			d.file(t)
		default:
			t.Free()
		}
	}
}

func (d *Device) own(t *Tensor) {
	if d.owned == nil {
		d.owned = map[*Tensor]struct{}{}
	}
	if len(d.owned) >= d.crowd {
		for old := range d.owned {
			if old.freed.Load() {
				delete(d.owned, old)
			}
		}
		d.crowd = 2*len(d.owned) + 64
	}
	t.owned = true
	d.owned[t] = struct{}{}
}

// Disown implements engine.Device.
func (d *Device) Disown(t engine.Tensor) engine.Tensor {
	r, ok := t.(*Tensor)
	if !ok || r == nil {
		return t
	}
	d.own(r)
	return t
}

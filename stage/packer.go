package stage

import (
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/packing"
)

// Packer packs what a stage sends into fewer bits, and records the largest rounding errors.
type Packer struct {
	Format packing.Format
	seen   engine.Tensor // a packing.Seen; nil until something is packed
}

// Pack returns a tensor of floats in the packed format, and the scales of its rows. It frees t. The results are
// outside of all scopes.
func (p *Packer) Pack(dev engine.Device, t engine.Tensor) (bytes, scales engine.Tensor, err error) {
	m := dev.Begin()
	defer dev.End(m)
	if p.seen == nil {
		seen, err := dev.Full(engine.Float64, []int64{packing.Numbers}, 0)
		if err != nil {
			return nil, nil, err
		}
		p.seen = dev.Disown(seen)
	}
	if bytes, scales, err = engine.Pack(dev, t, p.Format, p.seen); err != nil {
		return nil, nil, err
	}
	t.Free()
	return dev.Disown(bytes), dev.Disown(scales), nil
}

// Unpack returns the floats that packed bytes and scales represent, in the given type. It frees bytes and scales.
func Unpack(dev engine.Device, f packing.Format, bytes, scales engine.Tensor, float engine.DType) (engine.Tensor,
	error) {
	m := dev.Begin()
	defer dev.End(m)
	t, err := engine.Unpack(dev, bytes, scales, f, float)
	if err != nil {
		return nil, err
	}
	bytes.Free()
	scales.Free()
	return dev.Disown(t), nil
}

// Seen waits for the device and returns the largest rounding errors so far.
func (p *Packer) Seen(dev engine.Device) (packing.Seen, error) {
	if p.seen == nil {
		return packing.Seen{}, nil
	}
	host, err := dev.ToHost(p.seen)
	if err != nil {
		return packing.Seen{}, err
	}
	defer host.Free()
	if err := host.Ready().Wait(); err != nil {
		return packing.Seen{}, err
	}
	n := engine.Numbers[float64](host.Bytes())
	return packing.Seen{Absolute: n[0], Relative: n[1], Beyond: n[2]}, nil
}

// Free frees the tensor that records the errors.
func (p *Packer) Free() { free(p.seen) }

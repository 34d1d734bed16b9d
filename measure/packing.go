package measure

import (
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/stage"
)

// packedRows is the number of samples in the packed tensor.
const packedRows = 64

// packing measures how fast a worker packs and unpacks a tensor in each format, as stages do at a boundary.
func (t *Timer) packing() (all []profile.Packing, err error) {
	err = onThread(func() error {
		dev, err := t.engine.Open(0, 1)
		if err != nil {
			return err
		}
		defer dev.Close()
		float := t.engine.Float()
		shape := []int64{packedRows, copyBytes / float.Size() / packedRows}
		for _, f := range []packing.Format{packing.F16, packing.BF16, packing.I8} {
			p := &stage.Packer{Format: f}
			defer p.Free()
			var packs, unpacks []bracket
			for range copyRounds {
				x, err := dev.Full(float, shape, 1)
				if err != nil {
					return err
				}
				one, two, err := packOnce(dev, p, dev.Disown(x), float)
				if err != nil {
					return err
				}
				packs, unpacks = append(packs, one), append(unpacks, two)
			}
			all = append(all, profile.Packing{Format: f, PackBytesPerSecond: copyBytes / stats.Median(seconds(packs)),
				UnpackBytesPerSecond: copyBytes / stats.Median(seconds(unpacks))})
		}
		return nil
	})
	return all, err
}

// packOnce packs a tensor, unpacks it, and frees the results.
func packOnce(dev engine.Device, p *stage.Packer, x engine.Tensor, float engine.DType) (packs, unpacks bracket,
	err error) {
	begun := dev.Record()
	bytes, scales, err := p.Pack(dev, x)
	if err != nil {
		return packs, unpacks, err
	}
	packed := dev.Record()
	y, err := stage.Unpack(dev, p.Format, bytes, scales, float)
	if err != nil {
		return packs, unpacks, err
	}
	unpacked := dev.Record()
	y.Free()
	return bracket{begun, packed}, bracket{packed, unpacked}, nil
}

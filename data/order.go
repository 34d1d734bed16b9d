package data

import "fmt"

// order shuffles n samples anew for every epoch. The shuffle depends only on seed and epoch, and needs no memory. A
// Feistel network permutes the numbers below a power of four that is n or more. A number that becomes n or more goes
// through the network again, until it is below n ("cycle walking", Black and Rogaway, Ciphers with Arbitrary Finite
// Domains, CT-RSA 2002).
type order struct {
	n    uint64
	half uint // bits in each half of the network
	seed uint64
	keep bool // samples are not shuffled
}

func newOrder(n int, seed uint64, keep bool) order {
	o := order{n: uint64(n), half: 1, seed: seed, keep: keep}
	for uint64(1)<<(2*o.half) < o.n {
		o.half++
	}
	return o
}

// sample returns the sample at a position in the endless sequence of epochs.
func (o order) sample(position uint64) int {
	epoch, i := position/o.n, position%o.n
	if o.keep {
		return int(i)
	}
	key := mix(o.seed + 0x9e3779b97f4a7c15*(epoch+1))
	mask := uint64(1)<<o.half - 1
	for {
		left, right := i>>o.half, i&mask
		for round := range uint64(4) {
			left, right = right, left^(mix(key+round<<56+right)&mask)
		}
		if i = left<<o.half | right; i < o.n {
			return int(i)
		}
	}
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// positions returns the samples of a request's rows. It refuses rows that the batch does not have.
func (o order) positions(step, batchSize, firstRow, rows int) ([]int, error) {
	if step < 0 || batchSize < 1 || firstRow < 0 || rows < 1 || firstRow+rows > batchSize {
		return nil, fmt.Errorf("data: rows %d to %d of batch %d of %d samples do not exist", firstRow, firstRow+rows,
			step, batchSize)
	}
	samples := make([]int, rows)
	for r := range samples {
		samples[r] = o.sample(uint64(step)*uint64(batchSize) + uint64(firstRow+r))
	}
	return samples, nil
}

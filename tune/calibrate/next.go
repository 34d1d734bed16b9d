package calibrate

import (
	"cmp"
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// known holds what the observations say: the covariance of the numbers' logarithms, and the error of one measurement.
type known struct {
	covariance *mat.SymDense
	noise      float64
}

// after returns what is known once observations have given the residuals r.
func (f *fitting) after(jacobian [][]float64, r []float64) known {
	sum := 0.0
	for _, v := range r {
		sum += v * v
	}
	n := len(f.numbers)
	k := known{noise: max(Noise, math.Sqrt(sum/float64(len(r)))), covariance: mat.NewSymDense(max(n, 1), nil)}
	var factors mat.Cholesky
	if n > 0 && factors.Factorize(f.normal(jacobian, k.noise)) {
		_ = factors.InverseTo(k.covariance) // the prior makes the matrix positive definite
	}
	return k
}

// spread returns the standard deviation of a number's logarithm.
func (k *known) spread(i int) float64 { return math.Sqrt(max(0, k.covariance.At(i, i))) }

// tells returns the information that a measurement would add, and what would be known after it. The information is half
// of the logarithm of the factor by which the covariance's determinant shrinks. `rows` says how the measurement's times
// change with the numbers.
func (k *known) tells(rows [][]float64) (gain float64, then known) {
	then = known{noise: k.noise, covariance: mat.NewSymDense(k.covariance.SymmetricDim(), nil)}
	then.covariance.CopySym(k.covariance)
	for _, row := range rows { // one row at a time: Sherman and Morrison's update
		h := mat.NewVecDense(len(row), row)
		var s mat.VecDense
		s.MulVec(then.covariance, h)
		by := 1 + mat.Dot(h, &s)/(k.noise*k.noise)
		gain += 0.5 * math.Log(by)
		then.covariance.SymRankOne(then.covariance, -1/(k.noise*k.noise*by), &s)
	}
	return gain, then
}

// Candidate is a measurement that could be made.
type Candidate struct {
	Name  string
	Times []Predictor // predictions of the times that the measurement would give
}

// Advice is a measurement worth making.
type Advice struct {
	Measure string
	Gain    float64 // half the logarithm of the factor by which the determinant of the numbers' covariance shrinks
	Number  string  // the number that the measurement determines most
	// Before and After are that number's uncertainty, as a standard deviation of its logarithm.
	Before, After float64
}

// leastGain is the gain below which a measurement is not worth making.
const leastGain = 0.02

// Next returns the most informative measurements, at most `most` of them, the best first. Each measurement is chosen as
// if the ones before it had been made. Candidates that cannot be predicted are left out.
func (f *Fit) Next(all []Candidate, most int) ([]Advice, error) {
	type candidate struct {
		name string
		rows [][]float64
	}
	var left []candidate
	for _, c := range all {
		rows, err := f.changes(c)
		if err := context.Cause(f.fitting.ctx); err != nil {
			return nil, err
		}
		if err == nil {
			left = append(left, candidate{c.Name, rows})
		}
	}
	var out []Advice
	k := f.known
	for len(out) < most && len(left) > 0 && len(f.Numbers) > 0 {
		gains := make([]float64, len(left))
		for i, c := range left {
			gains[i], _ = k.tells(c.rows)
		}
		best := slices.Index(gains, slices.Max(gains))
		if gains[best] < leastGain {
			break
		}
		_, then := k.tells(left[best].rows)
		a := Advice{Measure: left[best].name, Gain: gains[best]}
		of := slices.MaxFunc(indices(len(f.Numbers)), func(a, b int) int {
			return cmp.Compare(k.spread(a)/then.spread(a), k.spread(b)/then.spread(b))
		})
		a.Number, a.Before, a.After = f.Numbers[of].Name, k.spread(of), then.spread(of)
		out, left, k = append(out, a), slices.Delete(left, best, best+1), then
	}
	return out, nil
}

func indices(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// changes returns how a candidate's times depend on the numbers. There is a row for each time and a column for each
// number. An element is the derivative of the logarithm of the time with respect to the logarithm of the number.
func (f *Fit) changes(c Candidate) ([][]float64, error) {
	const small = 1e-3
	at := func(theta []float64) ([]float64, error) { return f.fitting.logs(f.fitting.at(theta), c.Name, c.Times) }
	here, err := at(f.theta)
	if err != nil {
		return nil, err
	}
	rows := make([][]float64, len(c.Times))
	for i := range f.Numbers {
		moved := append([]float64(nil), f.theta...)
		moved[i] += small
		next, err := at(moved)
		if err != nil {
			return nil, err
		}
		for k := range rows {
			rows[k] = append(rows[k], (next[k]-here[k])/small)
		}
	}
	return rows, nil
}

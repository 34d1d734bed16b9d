package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/gonum/mat"

	"github.com/millrace-ml/millrace/cluster"
)

// fitting is a least-squares problem. Its unknown theta[i] is log(number i / first value of number i).
type fitting struct {
	ctx     context.Context
	c       *cluster.Cluster
	numbers []Number
	held    map[int]bool // numbers that keep their first value
}

// value returns number i for the unknown theta, limited to the number's range.
func (f *fitting) value(i int, theta float64) float64 {
	n := &f.numbers[i]
	return min(max(n.Before*math.Exp(theta), n.Least), n.Most)
}

// within limits the unknown theta so that number i is in its range.
func (f *fitting) within(i int, theta float64) float64 {
	n := &f.numbers[i]
	return min(max(theta, math.Log(n.Least/n.Before)), math.Log(n.Most/n.Before))
}

// rounded returns number i for the unknown theta, rounded to four digits. No number is known to more digits, and people
// read the numbers in cluster files.
func (f *fitting) rounded(i int, theta float64) float64 {
	n := &f.numbers[i]
	if f.held[i] {
		return n.Before
	}
	v, err := strconv.ParseFloat(strconv.FormatFloat(f.value(i, theta), 'e', 3, 64), 64)
	if err != nil || v < n.Least || v > n.Most {
		return f.value(i, theta)
	}
	return v
}

// holding returns a copy of the fitting in which some numbers are fixed, or nil if none is. Observations remove a part
// of each number's first uncertainty. A number is fixed if this part is less than `least`.
func (f *fitting) holding(fitted []Number, least float64) *fitting {
	out := *f
	out.held = map[int]bool{}
	for i := range fitted {
		if fitted[i].Told() < least {
			out.held[i] = true
		}
	}
	if len(out.held) == 0 {
		return nil
	}
	return &out
}

// at returns the cluster for the unknowns theta.
func (f *fitting) at(theta []float64) *cluster.Cluster {
	values := map[string]float64{}
	for i := range f.numbers {
		values[f.numbers[i].Name] = f.value(i, theta[i])
	}
	return with(f.c, values)
}

// logs returns the logarithms of predictions.
func (f *fitting) logs(c *cluster.Cluster, name string, all []Predictor) ([]float64, error) {
	out := make([]float64, len(all))
	for i, predict := range all {
		if err := context.Cause(f.ctx); err != nil {
			return nil, err
		}
		v, err := predict(c)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %s: %w", name, err)
		}
		if !(v > 0) || math.IsInf(v, 1) {
			return nil, fmt.Errorf("calibrate: %s: predicted %v s; it must be over 0", name, v)
		}
		out[i] = math.Log(v)
	}
	return out, nil
}

// residuals returns log(predicted/measured) of each observation.
func (f *fitting) residuals(all []Observation, theta []float64) ([]float64, error) {
	c := f.at(theta)
	out := make([]float64, len(all))
	for i, o := range all {
		if !(o.Measured > 0) || math.IsInf(o.Measured, 1) {
			return nil, fmt.Errorf("calibrate: %s: measured %v s; it must be over 0", o.Name, o.Measured)
		}
		v, err := f.logs(c, o.Name, []Predictor{o.Predict})
		if err != nil {
			return nil, err
		}
		out[i] = v[0] - math.Log(o.Measured)
	}
	return out, nil
}

// cost returns the sum of squares that is minimised.
func (f *fitting) cost(r, theta []float64) (sum float64) {
	for _, v := range r {
		sum += v * v / (Noise * Noise)
	}
	for i, v := range theta {
		by := f.numbers[i].Doubt
		sum += v * v / (by * by)
	}
	return sum
}

// normal returns J'J/s^2 + D^-2, the inverse of the covariance: J is the jacobian, s the error, D the Doubts.
func (f *fitting) normal(jacobian [][]float64, s float64) *mat.SymDense {
	n := len(f.numbers)
	out := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			sum := 0.0
			for k := range jacobian[i] {
				sum += jacobian[i][k] * jacobian[j][k] / (s * s)
			}
			if i == j {
				sum += 1 / (f.numbers[i].Doubt * f.numbers[i].Doubt)
			}
			out.SetSym(i, j, sum)
		}
	}
	return out
}

// fit minimises the cost, starting at the unknowns `from`.
func (f *fitting) fit(all []Observation, from []float64) ([]float64, error) {
	n := len(f.numbers)
	theta := append([]float64(nil), from...)
	r, err := f.residuals(all, theta)
	if err != nil || n == 0 {
		return theta, err
	}
	damping := 1e-3
	for range 30 {
		jacobian, err := f.jacobian(all, theta, r)
		if err != nil {
			return nil, err
		}
		normal, gradient := f.normal(jacobian, Noise), mat.NewVecDense(n, nil)
		for i := range n {
			by := f.numbers[i].Doubt
			down := -theta[i] / (by * by)
			for k := range r {
				down -= jacobian[i][k] * r[k] / (Noise * Noise)
			}
			gradient.SetVec(i, down)
		}
		for i := range f.held { // fixed numbers have no uncertainty and do not move
			for j := range n {
				normal.SetSym(i, j, 0)
			}
			normal.SetSym(i, i, 1)
			gradient.SetVec(i, 0)
		}
		moved := false
		for range 8 {
			damped := mat.NewSymDense(n, nil)
			damped.CopySym(normal)
			for i := range n {
				damped.SetSym(i, i, normal.At(i, i)*(1+damping))
			}
			step, err := solved(damped, gradient)
			if err != nil {
				return nil, err
			}
			next := make([]float64, n)
			for i := range n {
				next[i] = f.within(i, theta[i]+min(max(step.AtVec(i), -1), 1))
			}
			tried, err := f.residuals(all, next)
			if err != nil {
				return nil, err
			}
			if gain := f.cost(r, theta) - f.cost(tried, next); gain > 0 {
				moved = gain > 1e-6
				theta, r, damping = next, tried, damping/4
				break
			}
			damping *= 8
		}
		if !moved {
			break
		}
	}
	return theta, nil
}

// solved returns the solution x of a*x = b.
func solved(a *mat.SymDense, b *mat.VecDense) (*mat.VecDense, error) {
	var factors mat.Cholesky
	x := new(mat.VecDense)
	if !factors.Factorize(a) {
		return nil, errNotPositive
	}
	if err := factors.SolveVecTo(x, b); err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	return x, nil
}

// errNotPositive is returned if the matrix of the fit is not positive definite. Some change of a prediction is then not
// a finite number. With finite changes, the prior makes the matrix positive definite.
var errNotPositive = errors.New("calibrate: predictions change by no finite number with what is fitted")

// jacobian returns how the residuals change with each unknown, by forward differences. At a number's upper limit it
// uses backward differences.
func (f *fitting) jacobian(all []Observation, theta, r []float64) ([][]float64, error) {
	const small = 1e-3
	out := make([][]float64, len(theta))
	for i := range theta {
		moved := append([]float64(nil), theta...)
		by := small
		if f.within(i, moved[i]+small) < moved[i]+small {
			by = -small
		}
		moved[i] += by
		next, err := f.residuals(all, moved)
		if err != nil {
			return nil, err
		}
		out[i] = make([]float64, len(r))
		for k := range r {
			out[i][k] = (next[k] - r[k]) / by
		}
	}
	return out, nil
}

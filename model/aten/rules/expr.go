package rules

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Expr is an integer that depends only on the number of rows of a call.
type Expr struct {
	op   byte // 'c' constant, 'r' rows; otherwise an operator on a and b: + - * / (rounds down) % (has b's sign)
	c    int64
	a, b *Expr
	size int // number of nodes of the tree
}

// maxExpr is the largest number of nodes of an expression. Without a limit, doubling in a loop could use up all memory.
const maxExpr = 1000

func constant(c int64) *Expr { return &Expr{op: 'c', c: c, size: 1} }

// Constant returns an expression that does not depend on the rows.
func Constant(c int64) *Expr { return constant(c) }

var rowsExpr = &Expr{op: 'r', size: 1}

// Const returns the expression's value and true if the expression is a constant.
func (e *Expr) Const() (int64, bool) { return e.c, e.op == 'c' }

// Eval returns the expression's value for a number of rows.
func (e *Expr) Eval(rows int64) (int64, error) {
	switch e.op {
	case 'c':
		return e.c, nil
	case 'r':
		return rows, nil
	}
	a, err := e.a.Eval(rows)
	if err != nil {
		return 0, err
	}
	b, err := e.b.Eval(rows)
	if err != nil {
		return 0, err
	}
	return apply(e.op, a, b)
}

func (e *Expr) String() string {
	switch e.op {
	case 'c':
		return fmt.Sprint(e.c)
	case 'r':
		return "rows"
	}
	return fmt.Sprintf("(%s %c %s)", e.a, e.op, e.b)
}

// apply calculates like Python: division rounds down, and a remainder has the divisor's sign.
func apply(op byte, a, b int64) (int64, error) {
	over := fmt.Errorf("%d %c %d does not fit into 64 bits", a, op, b)
	switch op {
	case '+':
		if c := a + b; (c > a) == (b > 0) {
			return c, nil
		}
		return 0, over
	case '-':
		if c := a - b; (c < a) == (b > 0) {
			return c, nil
		}
		return 0, over
	case '*':
		if a == math.MinInt64 || b == math.MinInt64 {
			return 0, over
		}
		if hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b))); hi != 0 || lo > math.MaxInt64 {
			return 0, over
		}
		return a * b, nil
	}
	if b == 0 {
		return 0, errors.New("an integer is divided by 0")
	}
	if a == math.MinInt64 && b == -1 {
		return 0, over
	}
	q, r := a/b, a%b
	if r != 0 && (r < 0) != (b < 0) {
		q, r = q-1, r+b
	}
	if op == '/' {
		return q, nil
	}
	return r, nil
}

// combine makes an expression from an operator and two expressions, and simplifies it where it can.
func combine(op byte, a, b *Expr) (*Expr, error) {
	x, xc := a.Const()
	y, yc := b.Const()
	if xc && yc {
		c, err := apply(op, x, y)
		return constant(c), err
	}
	if yc && y == 0 && (op == '/' || op == '%') {
		return nil, errors.New("an integer is divided by 0")
	}
	if (yc && y == 1 && (op == '*' || op == '/')) || (yc && y == 0 && (op == '+' || op == '-')) {
		return a, nil
	}
	if xc && ((x == 1 && op == '*') || (x == 0 && op == '+')) {
		return b, nil
	}
	if op == '*' || op == '/' {
		if e := monomials(op, a, b); e != nil {
			return e, nil
		}
	}
	if a.size+b.size >= maxExpr {
		return nil, fmt.Errorf("an integer is calculated in more than %d steps; calculate it in fewer", maxExpr)
	}
	return &Expr{op: op, a: a, b: b, size: a.size + b.size + 1}, nil
}

// monomial returns c and k if an expression is c * rows^k.
func monomial(e *Expr) (c int64, k int, ok bool) {
	switch e.op {
	case 'c':
		return e.c, 0, true
	case 'r':
		return 1, 1, true
	case '*':
		c, k, ok = monomial(e.a)
		d, l, fine := monomial(e.b)
		p, err := apply('*', c, d)
		return p, k + l, ok && fine && err == nil
	}
	return 0, 0, false
}

// monomials multiplies or divides two monomials exactly, so that equal sizes get equal expressions. It returns nil if
// this is not possible.
func monomials(op byte, a, b *Expr) *Expr {
	c, k, ok := monomial(a)
	d, l, fine := monomial(b)
	if !ok || !fine {
		return nil
	}
	if op == '*' {
		p, err := apply('*', c, d)
		if err != nil {
			return nil
		}
		return power(p, k+l)
	}
	if d == 0 || d == -1 || c%d != 0 || k < l {
		return nil
	}
	return power(c/d, k-l)
}

func power(c int64, k int) *Expr {
	if c == 0 || k == 0 {
		return constant(c)
	}
	e := rowsExpr
	for range min(k, maxExpr) - 1 {
		e = &Expr{op: '*', a: e, b: rowsExpr, size: e.size + 2}
	}
	if c != 1 {
		e = &Expr{op: '*', a: constant(c), b: e, size: e.size + 2}
	}
	return e
}

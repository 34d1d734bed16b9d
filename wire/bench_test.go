package wire_test

import (
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// BenchmarkMessageInProcess hands one buffer's memory from a worker to another.
func BenchmarkMessageInProcess(b *testing.B) {
	carriers, err := wire.InProcess(2)
	if err != nil {
		b.Fatal(err)
	}
	var table wire.Table
	e, err := table.Edge(wire.Name{From: 0, To: 1}, 0)
	if err != nil {
		b.Fatal(err)
	}
	ports, err := wire.NewPorts(carriers, []int{0, 1}, func(int) wire.Config { return wire.Config{} })
	if err != nil {
		b.Fatal(err)
	}
	defer ports.Close()
	ports.Begin(0, table.Edges())()
	shape, done := []int64{4, 8}, func(error) {}
	b.ReportAllocs()
	for i := range b.N {
		parts := []wire.Buffer{{DType: wire.F32, Shape: shape, Owner: lent{}}}
		if err := ports.Port(0).Send(e, uint64(i), 0, parts, done); err != nil {
			b.Fatal(err)
		}
		if _, here := ports.Port(1).Take(e, uint64(i)); !here {
			b.Fatal("it is not there")
		}
	}
}

type lent struct{}

func (lent) Free() {}

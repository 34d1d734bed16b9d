package rendezvous

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// packed is the table of all processes in a compact form. Each process gets a copy, so the total size grows with the
// square of the number of processes.
type packed struct {
	Hosts     []string
	At        []int    // by rank: index of its host in Hosts
	Addresses [][]byte // by rank
	Differ    []string
}

// encode returns the table as bytes. Numbers are varints, and a text follows its length. The table has the hosts,
// then for each rank its host's number and its address, then the differences.
func (t *packed) encode() []byte {
	var b []byte
	number := func(n int) { b = binary.AppendUvarint(b, uint64(n)) }
	number(len(t.Hosts))
	for _, host := range t.Hosts {
		number(len(host))
		b = append(b, host...)
	}
	number(len(t.At))
	for rank, host := range t.At {
		number(host)
		number(len(t.Addresses[rank]))
		b = append(b, t.Addresses[rank]...)
	}
	number(len(t.Differ))
	for _, text := range t.Differ {
		number(len(text))
		b = append(b, text...)
	}
	return b
}

// errTable reports bytes that encode cannot have written.
var errTable = errors.New("rendezvous: rank 0 sent a table that is damaged")

// tableReader decodes a table, and never reads beyond the end of the bytes.
type tableReader struct {
	rest []byte
	err  error
}

// number reads a number of at most `most`.
func (r *tableReader) number(most int) int {
	n, size := binary.Uvarint(r.rest)
	if r.err != nil || size <= 0 || n > uint64(most) {
		r.err = errTable
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

// text reads a text with its length.
func (r *tableReader) text() []byte {
	n := r.number(len(r.rest))
	if r.err != nil || n > len(r.rest) {
		r.err = errTable
		return nil
	}
	text := r.rest[:n:n]
	r.rest = r.rest[n:]
	return text
}

// decode reads a table that encode has written, of `size` processes. Addresses share the memory of b.
func decode(b []byte, size int) (*packed, error) {
	r := tableReader{rest: b}
	t := &packed{At: make([]int, size), Addresses: make([][]byte, size)}
	for range r.number(size) {
		t.Hosts = append(t.Hosts, string(r.text()))
	}
	if n := r.number(len(b)); r.err == nil && n != size {
		return nil, fmt.Errorf("rendezvous: rank 0 sent a table of %d processes; there are %d", n, size)
	}
	for rank := range size {
		t.At[rank] = r.number(len(t.Hosts) - 1)
		t.Addresses[rank] = r.text()
	}
	for range r.number(maxFacts) {
		t.Differ = append(t.Differ, string(r.text()))
	}
	if r.err != nil || len(r.rest) > 0 || len(t.Hosts) == 0 {
		return nil, errTable
	}
	return t, nil
}

// places returns the Place of each rank.
func (t *packed) places() []Place {
	on := make([]int, len(t.Hosts))
	places := make([]Place, len(t.At))
	for rank, host := range t.At {
		places[rank] = Place{Host: t.Hosts[host], Node: host, LocalRank: on[host], Address: t.Addresses[rank]}
		on[host]++
	}
	for rank := range places {
		places[rank].LocalSize = on[places[rank].Node]
	}
	return places
}

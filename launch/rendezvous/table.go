package rendezvous

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// packed is where all processes are, short: one word of it goes to each of them, so that what all read grows
// with the square of their number.
type packed struct {
	Hosts     []string
	At        []int    // by rank, its host among Hosts
	Addresses [][]byte // by rank
	Differ    []string
}

// encode is the table in bytes. Numbers are varints; texts have their length in front: the hosts, for each
// rank the number of its host and its address, the differences.
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

// errTable is a table that was not written by encode.
var errTable = errors.New("rendezvous: rank 0 sent a table that is damaged")

// tableReader takes a table apart, and keeps to the bytes that there are.
type tableReader struct {
	rest []byte
	err  error
}

// number is a number of at most so much.
func (r *tableReader) number(most int) int {
	n, size := binary.Uvarint(r.rest)
	if r.err != nil || size <= 0 || n > uint64(most) {
		r.err = errTable
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

// text is a part of the bytes, with its length in front.
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

// decode reads what encode wrote of so many processes. Addresses are parts of b.
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

// places unpacks a table.
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

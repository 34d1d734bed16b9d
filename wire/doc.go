// Package wire moves messages between workers and sums gradients over them.
//
// In: messages, which are lists of parts (name, element type, shape, bytes), each
// addressed to a rank under a Tag. Out: the same messages at the other side, in the
// order they were sent under that Tag, and collectives built on them whose results
// have the same bits on every rank and on every transport.
// Refused: ranks outside the mesh, vectors of different lengths in one collective,
// anything after a peer has failed: every blocked call then returns a PeerError at once.
//
// The wire knows element types and lengths and nothing else of what it carries: a
// sum is a function the caller passes in.
//
// Ownership. A message belongs to its receiver from Send on: the sender must neither
// write nor free what it handed over, except where a collective says that it lends. In
// one process the bytes themselves change hands; Part.Owner is then whatever keeps them
// alive, which the receiver takes over. A transport between processes writes the bytes
// out and releases the owner. Messages nobody received are released by Close.
package wire

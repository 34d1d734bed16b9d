// Package wire moves tensors between workers in messages, over a Carrier, and keeps what lies with a receiver
// bounded.
//
// A Carrier moves single frames of exact length: InProcess here, others in packages of their own. A Port is
// one worker's end of all its edges: it makes frames of messages, counts slots and credits, and hands
// complete messages to whoever takes them. Ports are the ports of one process. Package collective sums
// vectors over them.
//
// In: a table of the edges that the workers have, and messages: a Key, a step, and buffers.
// Out: the same messages at the other end, complete, each told of once; the sender learns when its buffers
// are free.
// Refused: frames that are no header, or of another length than said; unequal engines and versions; more
// tensors, dimensions or bytes than MaxParts, MaxRank, MaxBytes; anything once a peer has failed.
//
// The wire knows element types and lengths and nothing else of what it carries. Numbers are little-endian, in
// headers and in tensors; a machine of the other order is refused when a Port is made.
//
// # Edges
//
// An edge is a directed pair of workers, for a collective a directed pair of its members. Its order is the
// order in which its sender posts messages, which is that of the sender's list. A receiver takes them by Key,
// in any order, so that a carrier needs no tags: the n-th frame sent on an edge is the n-th received. Tag
// packs epoch, edge and number into the word that carriers with tags match by. Edges are numbered by a Table,
// those from one worker to another by themselves, in the order in which Programs name them: a process knows the
// edges of its own workers alone, and both ends of one number it alike. A number stays an edge's own for the
// whole run, and frames are counted over it.
//
// # Messages
//
// A message is a header frame of HeaderBytes, a frame with the rest of its descriptions where they are many,
// and a frame for each buffer that is not empty. A header says Key, step, epoch, send time, and type and
// shape of each buffer, in binary. Memory for a buffer is taken when the header has come, from Config.Room,
// so that the receiver is charged. Where the edge's carrier hands memory over (InProcess), a message is one frame
// without bytes, in which the header as it is and the sender's own memory change hands. Either way the
// receiver finds a Buffer with an Owner, which is its to free.
//
// # Epochs
//
// Every message carries the number of its Program. One of the Program that the port was last told of
// (Port.Begin) is told at once; one of a later Program waits in its slot until Begin; one of an earlier
// Program is dropped, and its credit returned.
//
// # Slots and credits
//
// An edge with Slots n lets n messages lie with its receiver or be on their way to it. The receiver posts
// slots (Port.Post), which gives the sender as many credits, and a message goes on the wire only with a
// credit in hand. One that has none waits at its sender, in the order of its edge, and holds up no other
// edge. The sender of transfers begins with credits for all slots of the edge, and gets one back for each
// message taken (Config.Credited). A collective posts its own slots when its member joins. An edge with Slots
// 0 has no credits: the Program bounds what lies there. A later Program may need more slots, never fewer: the
// sender has the credits for them when its edges are opened again.
//
// # What whoever drives a Port must do
//
//  1. Name the edges that its workers have, those between the same two workers in the same order in every
//     process, for every Program.
//  2. Open the edges of a Program, then Begin its epoch, before its first message is sent; and that only when
//     all processes have ended the Program before, so that nothing else waits for what a carrier holds.
//  3. Post messages on an edge from one goroutine at a time: their order is the edge's order.
//  4. Leave a buffer alone from Send until done. The port frees its Owner, or the receiver does.
//  5. Take every message that is told, or Close the port, which frees what nobody took.
//  6. Call Fail when the control connection says that a peer has failed. The port is at its end then: what
//     waits in it and what is posted with that peer ends with a PeerError within milliseconds, and so does
//     every later call; the rest ends with Close. The wire itself judges nobody dead.
//
// Functions given to a port or carrier (done, arrivals, failures) run on any goroutine, never under a lock of
// the engine, and must neither block nor close the port.
//
// # Carriers
//
// Whoever writes a Carrier must
//
//  1. give an Address of at most MaxAddress bytes that is the same until Close, and refuse in Connect what is
//     of another engine or version;
//  2. deliver the n-th frame sent on an edge to the n-th receive posted on it, in order over all epochs,
//     whichever comes first, and hold up no edge by a frame of another worker;
//  3. leave frames and buffers alone but between the call and done, which it says once for each call, on any
//     goroutine, under no lock of its own;
//  4. refuse a frame of another length than its receive has, by a LengthError;
//  5. return from every method without waiting, whichever goroutine calls;
//  6. count in Moved what goes and comes, so that a slow transfer is told from a stalled one;
//  7. judge nobody dead: what cannot be moved stays posted until Fail or Close;
//  8. end all with a worker within milliseconds of Fail, by its first error, and everything with Close, by
//     ErrClosed, when which has returned nothing of the carrier runs any more.
//
// What the Carrier interface asks is tested by package wiretest. Those between workers of one process embed
// Local. Split joins two: workers of one process reach each other by memory and those of others by TCP, edge
// by edge.
package wire

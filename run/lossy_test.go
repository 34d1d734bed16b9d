package run

import "github.com/millrace-ml/millrace/wire"

// lossyMesh is a mesh that loses whatever is sent with phase 0: activations and gradients.
func lossyMesh(n int) (wire.Mesh, error) {
	l, err := wire.NewLocal(n)
	return lossy{l}, err
}

type lossy struct{ *wire.Local }

func (l lossy) Endpoint(rank int) wire.Endpoint { return lossyEndpoint{l.Local.Endpoint(rank)} }

type lossyEndpoint struct{ wire.Endpoint }

func (e lossyEndpoint) Send(to int, tag wire.Tag, m wire.Message) error {
	if tag.Phase == 0 {
		m.Release()
		return nil
	}
	return e.Endpoint.Send(to, tag, m)
}

package launch

import "fmt"

// TLSOn is the value of TLSVar that turns encryption on.
const TLSOn = "on"

// encryption returns the TLS settings in the environment, or nil if connections are not encrypted.
func (env environment) encryption() (*TLS, error) {
	if env.has(TLSVar) && env[TLSVar] != TLSOn {
		return nil, fmt.Errorf("%s; it is %s where connections are to be encrypted, and not set where not", env.shown(TLSVar),
			TLSOn)
	}
	if !env.has(TLSCertVar, TLSKeyVar, TLSRootsVar) {
		if env.has(TLSVar) {
			return &TLS{}, nil
		}
		return nil, nil
	}
	if err := env.together(TLSCertVar, TLSKeyVar); err != nil {
		return nil, err
	}
	return &TLS{Certificate: env[TLSCertVar], Key: env[TLSKeyVar], Roots: env[TLSRootsVar]}, nil
}

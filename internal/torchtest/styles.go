package torchtest

import "strings"

// Styles returns further networks, each written in a different style. Some draw random numbers, and some are refused.
func Styles() []Request {
	var all []Request
	for _, of := range []struct{ file, names string }{
		{"images.py", `unet squeeze_excite:cross_entropy autoencoder vae vae_with_noise super_resolution densenet supervised
			frozen:cross_entropy patches:cross_entropy standardised:cross_entropy capsules`},
		{"towers.py", `contrastive counting halves siamese experts topk:cross_entropy highway:mse wide averages
			dqn physics graph fourier:cross_entropy accumulates teacher depends:mse own_backward:mse`},
		{"sequences.py", `translator temporal:cross_entropy llama t5 dropped pair chunks speech packed`},
	} {
		for _, one := range strings.Fields(of.names) {
			name, loss, _ := strings.Cut(one, ":")
			all = append(all, Request{Name: name, File: of.file, Loss: loss})
		}
	}
	return all
}

package live

import (
	"fmt"
	"math"
	"regexp"
	"testing"
)

// linear returns the linear light of a colour channel, from 0 to 1 (IEC 61966-2-1).
func linear(c uint8) float64 {
	v := float64(c) / 255
	if v <= .04045 {
		return v / 12.92
	}
	return math.Pow((v+.055)/1.055, 2.4)
}

// lab returns the coordinates of a colour in CIELAB under D65, where distances match perception, and its luminance.
func lab(r, g, b uint8) (at [3]float64, y float64) {
	R, G, B := linear(r), linear(g), linear(b)
	f := func(t float64) float64 {
		if t > 216./24389 {
			return math.Cbrt(t)
		}
		return (24389./27*t + 16) / 116
	}
	y = .2126*R + .7152*G + .0722*B
	fx, fy, fz := f((.4124*R+.3576*G+.1805*B)/.9505), f(y), f((.0193*R+.1192*G+.9505*B)/1.089)
	return [3]float64{116*fy - 16, 500 * (fx - fy), 200 * (fy - fz)}, y
}

// Colours of runs are clearly different, and contrast with the page, in light and dark.
func TestRunsHaveColoursOfTheirOwn(t *testing.T) {
	text, err := web.ReadFile("web/live.css")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`--r(\d): #(..)(..)(..);`).FindAllStringSubmatch(string(text), -1)
	if len(all) != 16 {
		t.Fatalf("%d colours of runs; 8 of each theme are known", len(all))
	}
	for theme, ground := range []float64{1, .0103} { // luminance of --surface: #ffffff and #161a22
		var at [][3]float64
		for k, m := range all[8*theme : 8*theme+8] {
			var r, g, b uint8
			if _, err := fmt.Sscanf(m[2]+" "+m[3]+" "+m[4], "%x %x %x", &r, &g, &b); err != nil || m[1] != fmt.Sprint(k) {
				t.Fatal(m, err)
			}
			one, y := lab(r, g, b)
			if contrast := (max(y, ground) + .05) / (min(y, ground) + .05); contrast < 3.5 {
				t.Errorf("theme %d: colour %d has a contrast of %.2f", theme, k, contrast)
			}
			for i, other := range at {
				d := math.Sqrt(math.Pow(one[0]-other[0], 2) + math.Pow(one[1]-other[1], 2) + math.Pow(one[2]-other[2], 2))
				if d < 30 {
					t.Errorf("theme %d: colours %d and %d are %.1f apart", theme, i, k, d)
				}
			}
			at = append(at, one)
		}
	}
}

package negotiate

import "testing"

func TestTakesGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"gzip": true, "": false, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip;q=0, *": false, "*;q=1, gzip;q=0": false, "*": true, "*;q=0": false,
		"gzip;q=NaN": false, "gzip;q=-1": false, "identity": false, "GZIP": true, "x-gzip": true, "gzip;q=nonsense": false, "xgzip": false,
	} {
		if got := TakesGzip([]string{"br", accept}); got != want {
			t.Errorf("%q: %t", accept, got)
		}
	}
}

func TestMatches(t *testing.T) {
	for held, want := range map[string]bool{
		`"a"`: true, `W/"a"`: true, `"b", "a"`: true, `"b" , W/"a"`: true, "*": true, "": false, `"b"`: false, `"ba"`: false, "a": false, `"a`: false, `"b\"a"`: false,
	} {
		for _, tag := range []string{`"a"`, `W/"a"`} {
			if got := Matches([]string{`"x"`, held}, tag); got != want {
				t.Errorf("%s, %q: %t", tag, held, got)
			}
		}
	}
}

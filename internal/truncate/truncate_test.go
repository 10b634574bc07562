package truncate

import "testing"

func TestText(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		mark string
		want string
	}{
		{"", 0, "…", ""},
		{"abc", 3, "…", "abc"},
		{"abcd", 3, "…", "abc…"},
		{"aé", 3, "…", "aé"},
		{"aéb", 2, "…", "a…"},
		{"aéb", 3, "", "aé"},
		{"\U0001f600x", 3, "...", "..."},
		{"a\xffbc", 3, "…", "ab…"},
		{"abc", 0, "", ""},
	} {
		if got := Text(c.s, c.n, c.mark); got != c.want {
			t.Errorf("the first %d bytes of %q: %q, want %q", c.n, c.s, got, c.want)
		}
	}
}

package fault

import "testing"

// TestNearest: a typo finds the name that was meant, and an unrelated name finds none.
func TestNearest(t *testing.T) {
	known := []string{"decision", "user_id", "limit", "cache_ttl", "GATEHOUSE_LISTEN"}
	for name, want := range map[string]string{
		"desicion": "decision", "Decision": "decision", "usr_id": "user_id", "user-id": "user_id", "lim": "limit",
		"cache_tll": "cache_ttl", "GATEHOUSE_LISTN": "GATEHOUSE_LISTEN", "colour": "", "": "", "ab": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
	if got := DidYouMean("limt", known); got != `; did you mean "limit"?` {
		t.Errorf("DidYouMean = %q, want limit", got)
	}
}

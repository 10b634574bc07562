package fulltest

import "testing"

func TestInner(t *testing.T) {
	for _, c := range []struct {
		full, ci, run string
		want          bool
	}{
		{"", "", "", true},
		{"", "false", "", true},
		{"1", "", "", false},
		{"", "true", "", false},
		{"", "", "TestX", false},
	} {
		if got := inner(c.full, c.ci, c.run); got != c.want {
			t.Errorf("inner(%q, %q, %q) = %v, want %v", c.full, c.ci, c.run, got, c.want)
		}
	}
}

func TestRounds(t *testing.T) {
	for full, want := range map[string]int{"": 3, "1": 9} {
		t.Setenv("GATEHOUSE_TEST_FULL", full)
		if got := Rounds(3, 9); got != want {
			t.Errorf("Rounds(3, 9) = %d with GATEHOUSE_TEST_FULL=%q, want %d", got, full, want)
		}
	}
}

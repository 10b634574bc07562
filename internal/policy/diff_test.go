package policy

import (
	"strings"
	"testing"
)

// TestUnified: a difference has the hunks, context and line numbers of a unified diff.
func TestUnified(t *testing.T) {
	if got := Unified("a", "b", "x\ny\n", "x\ny\n"); got != "" {
		t.Errorf("unified of equal texts = %q, want nothing", got)
	}
	a := "1\n2\n3\n4\n5\n6\n7\n7b\n8\n9\n10\n11\n12\n"
	b := "1\n2\n3\nfour\n5\n6\n7\n7b\n8\n9\n10\n12\n13\n"
	want := `--- a
+++ b
@@ -1,7 +1,7 @@
 1
 2
 3
-4
+four
 5
 6
 7
@@ -9,5 +9,5 @@
 8
 9
 10
-11
 12
+13
`
	if got := Unified("a", "b", a, b); got != want {
		t.Errorf("unified = \n%s\nwant\n%s", got, want)
	}
	if got := Unified("a", "b", "", "x\n"); !strings.Contains(got, "@@ -0,0 +1,1 @@\n+x\n") {
		t.Errorf("unified from an empty text = %q, want one new line", got)
	}
	long := strings.Repeat("x\n", 3000)
	other := strings.Repeat("y\n", 3000)
	if got := Unified("a", "b", long, other); strings.Count(got, "\n-x")+strings.Count(got, "\n+y") != 6000 {
		t.Error("unified of 3,000 different lines lacks some of them")
	}
}

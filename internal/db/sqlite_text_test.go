package db

import "testing"

// TestPositional: placeholders become ? only if they come in order, once each, outside of texts.
func TestPositional(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`SELECT 1`, "SELECT 1"},
		{`VALUES ($1,$2),($3, $4)`, "VALUES (?,?),(?, ?)"},
		{`a = $1 AND b = $1`, `a = $1 AND b = $1`},
		{`a = $2 AND b = $1`, `a = $2 AND b = $1`},
		{`a = '$2' AND "$3" = $1 -- $9 it's` + "\n", `a = '$2' AND "$3" = ? -- $9 it's` + "\n"},
		{`a = 'it''s $2' AND b = $1`, `a = 'it''s $2' AND b = ?`},
		{`a = $1 AND b LIKE '?' AND c = ?`, `a = $1 AND b LIKE '?' AND c = ?`},
		{`$1 $2 $3 $4 $5 $6 $7 $8 $9 $10`, "? ? ? ? ? ? ? ? ? ?"},
	} {
		if got := positional(c.in); got != c.want {
			t.Errorf("positional(%s) = %s, want %s", c.in, got, c.want)
		}
	}
}
